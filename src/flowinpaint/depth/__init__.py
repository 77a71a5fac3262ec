"""Dense metric depth from LiDAR scans, depth cameras and structure from motion.

`velodyne` and `colmap` read points, `camera` projects them, `visibility` drops points that a nearer object hides, and
`complete` fills the image.
"""
