"""Model families of Megatron-Bridge."""
