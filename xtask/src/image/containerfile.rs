//! The Containerfiles make what `cargo xtask image` makes. Nothing here builds them: that takes images of a registry. So
//! that of the mock driver is parsed, and the shell script that it builds with is run with stand-ins for the programs that
//! it calls; that of the NVIDIA driver, which differs by its libraries, is read.

use std::{path::Path, process::Command};

use parse_dockerfile::{Command as Form, CopyInstruction, Dockerfile, Instruction, Source, Stage};

use super::{Driver, libraries};
use crate::static_build;

const TEXT: &str = include_str!("../../../examples/mock-gpu-driver/deploy/Containerfile");
const NVIDIA: &str = include_str!("../../../examples/nvidia-gpu-driver/deploy/Containerfile");
/// Where the program is in the image.
const PROGRAM: &str = "/mock-gpu-driver";
const IGNORED: &str = include_str!("../../../.dockerignore");

fn parsed() -> Dockerfile<'static> {
    parse_dockerfile::parse(TEXT).unwrap()
}

/// What a stage begins from, and its name.
fn from(stage: &Stage<'_, '_>) -> (String, Option<String>) {
    let name = stage.from.as_.as_ref().map(|(_, name)| name.value.to_string());
    (stage.from.image.value.to_string(), name)
}

/// The stage that files are taken from, if any, the files, and where they go.
fn copied(copy: &CopyInstruction<'_>) -> (Option<String>, Vec<String>, String) {
    let mut stages = copy.options.iter().filter(|flag| flag.name.value == "from");
    let stage = stages.find_map(|flag| Some(flag.value.as_ref()?.value.to_string()));
    let files = copy.src.iter().map(|source| match source {
        Source::Path(path) => path.value.to_string(),
        other => panic!("{other:?}"),
    });
    (stage, files.collect(), copy.dest.value.to_string())
}

/// The script of the stage that builds.
fn script() -> &'static str {
    let file = parsed();
    let stage = file.stage("build").expect("a stage `build`");
    let scripts = stage.instructions.iter().filter_map(|instruction| match instruction {
        Instruction::Run(run) => Some(&run.arguments),
        _ => None,
    });
    match scripts.collect::<Vec<_>>()[..] {
        [Form::Shell(script)] => script.value,
        ref others => panic!("{others:?}"),
    }
}

#[test]
fn the_image_is_the_program_and_nothing_else() {
    let file = parsed();
    let stages: Vec<_> = file.stages().collect();
    let [build, image] = &stages[..] else { panic!("{} stages", stages.len()) };
    let (base, name) = from(build);
    assert!(base.starts_with("docker.io/library/rust:1-"), "{base}");
    assert_eq!((name.as_deref(), from(image)), (Some("build"), ("scratch".to_owned(), None)));

    let [Instruction::Workdir(_), Instruction::Copy(workspace), Instruction::Run(_)] = build.instructions
    else {
        panic!("{:?}", build.instructions)
    };
    assert_eq!(copied(workspace), (None, vec![".".to_owned()], ".".to_owned()));

    let [Instruction::Copy(program), Instruction::Entrypoint(entrypoint)] = image.instructions else {
        panic!("{:?}", image.instructions)
    };
    assert_eq!(copied(program), (Some("build".to_owned()), vec![PROGRAM.to_owned()], PROGRAM.to_owned()));
    let Form::Exec(words) = &entrypoint.arguments else { panic!("{entrypoint:?}") };
    assert_eq!(words.value.iter().map(|word| &*word.value).collect::<Vec<_>>(), [PROGRAM]);
}

#[test]
fn the_program_is_built_as_cargo_xtask_image_builds_it() {
    // Words of calls, each on a line of its own.
    const STAND_INS: &str = r#"
        cargo() {
            case $1 in
                -vV) printf 'cargo 1.89.0\nhost: made-up-target\nos: none\n' ;;
                *) printf '%s\n' "$RUSTFLAGS" "$@" > built ;;
            esac
        }
        mv() { printf '%s\n' "$@" > moved; }
    "#;
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-ec", &format!("{STAND_INS}\n{}", script())]).current_dir(folder.path());
    let output = shell.env_remove("RUSTFLAGS").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let words = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let built =
        [&[static_build::FLAGS, "build", "--target", "made-up-target"][..], &Driver::Mock.arguments()]
            .concat();
    assert_eq!(words("built"), built);
    assert_eq!(words("moved"), [&format!("target/made-up-target/release{PROGRAM}"), PROGRAM]);
}

#[test]
fn the_image_for_nvidia_has_the_program_and_the_libraries_of_the_other_build() {
    let build = Driver::Nvidia.arguments().join(" ");
    let also = libraries::ALSO.join(" ");
    for wanted in [build.as_str(), also.as_str(), "FROM scratch", "ENTRYPOINT [\"/nvidia-gpu-driver\"]"] {
        assert!(NVIDIA.contains(wanted), "{wanted} is not in the Containerfile");
    }
}

#[test]
fn nothing_that_the_build_needs_is_kept_from_it() {
    let ignored: Vec<_> = IGNORED.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(ignored, ["/.git", "/target"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    assert!(root.join("Cargo.lock").is_file(), "--locked needs it");
}
