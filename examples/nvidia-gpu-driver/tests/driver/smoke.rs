//! The program for machines with a GPU, on one without: it has to work where there is one.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command};

use fake_nvml::{Gpu, Machine, Model};

use crate::rig::Rig;

/// What `nvidia-smi -q -x` says of an H100 and an L4 of the stand-in, as far as it is read.
fn nvidia_smi(rig: &Rig, architecture: &str) -> PathBuf {
    let gpu = |number: u32, name: &str, architecture: &str| {
        let uuid = rig.fake.machine().unwrap().gpus[number as usize].uuid();
        let uuid = String::from_utf8(uuid.bytes().to_vec()).unwrap();
        format!(
            "<gpu id=\"x\"><product_name>{name}</product_name><product_architecture>{architecture}\
             </product_architecture><uuid>{uuid}</uuid><minor_number>{number}</minor_number></gpu>"
        )
    };
    let gpus = gpu(0, "NVIDIA H100 80GB HBM3", "Hopper") + &gpu(1, "NVIDIA L4", architecture);
    let text =
        format!("#!/bin/sh\ncat <<E\n<log><driver_version>580.82.07</driver_version>{gpus}</log>\nE\n");
    let program = rig.root().join("nvidia-smi");
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

fn smoke(rig: &Rig, architecture: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-smoke"));
    command
        .arg("--nvidia-smi")
        .arg(nvidia_smi(rig, architecture))
        .arg("--")
        .args(rig.machine_options())
        .args(["--poll-interval", "1"]);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.success(), text)
}

#[tokio::test]
async fn gpus_are_held_against_nvidia_smi_and_prepared() {
    let machine = Machine::new([Gpu::new(Model::H100Sxm5_80Gb, 0), Gpu::new(Model::L4, 1)]);
    let rig = Rig::without_nvml(&machine, &[]).await;
    rig.install();
    let (succeeded, text) = smoke(&rig, "Ada Lovelace");
    assert!(succeeded && text.contains("2 GPUs are as nvidia-smi tells"), "{text}");
    assert!(text.contains("NVML was closed and opened again"), "{text}");
    let (succeeded, text) = smoke(&rig, "Turing");
    assert!(!succeeded && text.contains("architecture is \"Ada Lovelace\""), "{text}");
}
