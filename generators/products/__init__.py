"""The products that can be a target: one module each, found by walking this folder."""
