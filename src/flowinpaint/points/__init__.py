"""`inpaint_points`: values at sub-pixel positions, moved to pixel centres, merged and filled."""
