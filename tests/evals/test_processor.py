"""What a report says of the processor, on which rounding depends."""

from __future__ import annotations

import pytest

from skillgen.evals.kernel import processor

EPYC = "processor\t: 0\nmodel name\t: AMD EPYC 7763 64-Core Processor\nflags\t\t: fpu sse2 avx avx2 bmi2\n"
XEON = "model name\t: Intel(R) Xeon(R) Processor\nflags\t\t: avx avx2 avx512f avx512bw amx_tile amx_bf16\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd sve sve2 bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
MKL = " - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 1\n - Build settings: BLAS_INFO=mkl, X=1"


@pytest.mark.parametrize(
    ("told", "used", "name", "vector"),
    [
        (EPYC, "AVX2", "AMD EPYC 7763 64-Core Processor", "AVX2 of AVX2"),
        (XEON, "AVX512", "Intel(R) Xeon(R) Processor", "AVX512 of AVX2, AVX512, AMX"),
        (ARM, "DEFAULT", "0xd4f", "DEFAULT of NEON, SVE, SVE2"),
        ("", "NO AVX", "", "NO AVX"),
    ],
)
def test_model_and_vector_instructions(told: str, used: str, name: str, vector: str) -> None:
    assert name in processor.model(told) and processor.model(told)
    assert processor.vector(told, used) == vector


def test_the_library_of_matrix_products() -> None:
    assert processor.blas(MKL) == "mkl 2024.2"
    assert processor.blas("Build settings: BLAS_INFO=open, X=1") == "open"
    assert processor.blas("nothing") == "unknown"


def test_all_is_told_of_this_machine() -> None:
    assert set(processor.processor()) == {"cpu", "vector", "blas"} and all(processor.processor().values())
