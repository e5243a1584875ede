"""Things with a depth: voxels, reliefs and parametric bodies as GLB files."""
