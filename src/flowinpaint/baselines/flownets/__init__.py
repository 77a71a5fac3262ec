"""FlowNetS for inpainting."""
