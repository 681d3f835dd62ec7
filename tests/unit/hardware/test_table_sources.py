"""What source files know that the tables do not."""

from benchmarks.tables import cmake, cputype, intel_family, pci_ids, redistrib


def test_only_new_hardware_is_listed():
    ids = (
        "10de  NVIDIA Corporation\n\t2204  GA102 [GeForce RTX 3090]\n\t\t1028 3881  A board\n"
        "\t22ff  GA102 [GeForce RTX 3091]\n\t1aef  GA102 High Definition Audio Controller\n"
        "10df  Emulex\n\t2299  GA102 [of another vendor]\n"
    )
    assert list(pci_ids(ids)) == ["gpus.yml: 22ff GA102 [GeForce RTX 3091]"]
    family = "#define INTEL_PANTHERLAKE_L\t\tIFM(6, 0xCC)\n#define INTEL_NEW\tIFM(19, 0x07)\n"
    assert list(intel_family(family)) == ["cpus.yml: Intel NEW, family 19, model 7"]
    cores = (
        "#define ARM_CPU_IMP_ARM\t\t0x41\n#define ARM_CPU_PART_CORTEX_A725\t0xD87\n"
        "#define ARM_CPU_PART_NEW\t0xDFF\n"
    )
    assert list(cputype(cores)) == ["cpus.yml: ARM NEW, implementer 0x41, part 0xDFF"]
    assert list(cmake("set(CMAKE_CUDA_ARCHITECTURES_ALL 75 86 120 130)")) == ["gpus.yml: SM 13.0"]
    assert list(redistrib('{"release_label": "12.8.2"}')) == []
    assert list(redistrib('{"release_label": "14.0.0"}')) == ["cuda.yml: CUDA 14.0"]
