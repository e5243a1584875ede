"""3D models as GLB files: voxels, reliefs and parametric bodies."""
