"""Methods without a network: each fills one sparse field, guided by the image or not."""
