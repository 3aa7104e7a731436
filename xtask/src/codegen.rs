//! Makes the committed gRPC code anew from `proto/`.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};

/// Source file, protobuf package, and the module that the code goes to.
const CONTRACTS: [(&str, &str, &str); 5] = [
    ("pluginregistration/v1.proto", "pluginregistration", "registration"),
    ("dra/v1.proto", "k8s.io.kubelet.pkg.apis.dra.v1", "dra_v1"),
    ("dra/v1beta1.proto", "k8s.io.kubelet.pkg.apis.dra.v1beta1", "dra_v1beta1"),
    ("dra-health/v1.proto", "v1", "health_v1"),
    ("dra-health/v1alpha1.proto", "v1alpha1", "health_v1alpha1"),
];

const TARGET: &str = "crates/dra-kubeletplugin/src/wire/generated";

/// Writes the generated code, or with `check` fails if the tree holds something else.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let target = root.join(TARGET);
    fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    for (source, package, module) in CONTRACTS {
        let code = generate(&root.join("proto"), source, package)?;
        let path = target.join(format!("{module}.rs"));
        if fs::read_to_string(&path).is_ok_and(|old| old == code) {
            continue;
        }
        if check {
            bail!("{} differs from what proto/{source} generates: run `cargo xtask codegen`", path.display());
        }
        fs::write(&path, code).with_context(|| format!("writing {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

fn generate(protos: &Path, source: &str, package: &str) -> Result<String> {
    let descriptors =
        protox::compile([source], [protos]).with_context(|| format!("compiling proto/{source}"))?;
    let scratch = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/codegen").join(package);
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    tonic_prost_build::configure()
        .build_transport(false)
        .out_dir(&scratch)
        .compile_fds(descriptors)
        .with_context(|| format!("generating code for proto/{source}"))?;
    let made = scratch.join(format!("{package}.rs"));
    fs::read_to_string(&made).with_context(|| format!("reading {}", made.display()))
}
