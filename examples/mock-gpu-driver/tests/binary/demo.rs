//! `demo`: the whole path of a GPU into a container and out again.

use std::collections::BTreeMap;

use serde_json::Value;
use transcript::{Document, EMBEDDED, Gpus};

use crate::program::{program, run};

/// `UPDATE_DOCUMENTS=1 cargo test -p mock-gpu-driver documents_show` writes what is printed now into them.
#[test]
fn the_documents_show_what_the_program_prints() {
    let update = std::env::var_os("UPDATE_DOCUMENTS").is_some();
    for (path, heading) in EMBEDDED {
        let mut document = Document::read(path).unwrap();
        let blocks = document.blocks().into_iter().filter(|block| block.heading == heading);
        let steps: Vec<_> = blocks.flat_map(|block| block.steps).collect();
        assert!(steps.iter().any(|step| !step.shown.is_empty()), "{path} shows nothing below {heading:?}");
        for step in steps {
            let arguments = step.command.strip_prefix("cargo run -p mock-gpu-driver -- ");
            let arguments =
                arguments.unwrap_or_else(|| panic!("{path} runs another program: {}", step.command));
            let ran = run(program(arguments.split_whitespace()));
            assert!(ran.succeeded, "{}", ran.err);
            if !step.shown.is_empty()
                && transcript::matches(&step.shown, &ran.out, &Gpus::default()).is_none()
            {
                let fresh = transcript::refreshed(&step.shown, &ran.out, &Gpus::default());
                assert!(
                    update,
                    "{path} shows something else below {heading:?} than is printed:\n{}",
                    fresh.join("\n")
                );
                document.show(&step, &fresh).unwrap();
            }
        }
    }
}

#[test]
fn the_demo_prints_its_steps_in_order() {
    let demo = run(program(["demo"]));
    assert!(demo.succeeded, "{}", demo.err);
    let headlines: Vec<&str> =
        demo.out.lines().filter_map(|line| line.split_once(" s  ")).map(|(_, text)| text).collect();
    let words: Vec<&str> =
        headlines.iter().filter_map(|line| line.split_once(':')).map(|(word, _)| word).collect();
    let expected = [
        "registered",
        "published",
        "allocated",
        "prepared",
        "CDI file",
        "container",
        "unprepared",
        "nothing left",
    ];
    assert_eq!(words, expected, "{}", demo.out);
    assert_eq!(headlines.last(), Some(&"driver stopped with exit code 0"));
    for shown in ["gpu-7", "LATEST-GPU-MODEL", "80Gi", "GPU_DEVICE_", "k8s.gpu.example.com/claim="] {
        assert!(demo.out.contains(shown), "{shown} is missing in {}", demo.out);
    }
}

#[test]
fn the_json_demo_tells_each_step_with_its_facts() {
    let demo = run(program(["demo", "--json"]));
    assert!(demo.succeeded, "{}", demo.err);
    let events: Vec<Value> = demo.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entry = |event: &Value| (event["event"].as_str().unwrap().to_owned(), event.clone());
    let by_name: BTreeMap<String, Value> = events.iter().map(entry).collect();

    assert_eq!(by_name["registered"]["driver"], "gpu.example.com");
    let published = by_name["published"]["devices"].as_array().unwrap();
    let names: Vec<_> = published.iter().map(|device| device["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6", "gpu-7"]);
    assert_eq!(published[3]["attributes"]["index"], "3");
    assert_eq!(published[3]["attributes"]["model"], "LATEST-GPU-MODEL");
    assert_eq!(published[3]["attributes"]["driverVersion"], "1.0.0");
    assert_eq!(published[3]["capacity"]["memory"], "80Gi");

    let allocated = by_name["allocated"]["devices"][0].as_str().unwrap();
    let gpu = allocated.strip_prefix("node-1/").unwrap();
    let id = by_name["prepared"]["cdi_device_ids"][0].as_str().unwrap();
    assert!(id.starts_with("k8s.gpu.example.com/claim=") && id.ends_with(gpu), "{id}");
    assert_eq!(by_name["cdi_file"]["content"]["kind"], "k8s.gpu.example.com/claim");
    let env: Vec<_> =
        by_name["container"]["env"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    let index = gpu.strip_prefix("gpu-").unwrap();
    assert!(env.contains(&format!("GPU_DEVICE_{index}={gpu}").as_str()), "{env:?}");
    assert!(env.contains(&"DRA_RESOURCE_DRIVER_NAME=gpu.example.com"), "{env:?}");
    assert_eq!(by_name["unprepared"]["claim"], by_name["prepared"]["claim"]);
    assert_eq!(by_name["nothing_left"]["cdi_files"], 0);
    assert_eq!(by_name["driver_stopped"]["exit_code"], 0);
}

/// The demo shows what really happens: without the CDI file there is no GPU in the container.
#[test]
fn the_demo_fails_when_no_cdi_file_is_written() {
    let mut command = program(["demo"]);
    command.env("DRA_SKIP", "cdi-write");
    let demo = run(command);
    assert!(demo.error().contains("the demo failed"), "{}", demo.err);
    assert!(demo.err.contains("unresolvable CDI devices"), "{}", demo.err);
    assert!(!demo.out.contains("container:"), "{}", demo.out);
}

#[test]
fn the_demo_minds_no_options_that_are_meant_for_a_driver() {
    let mut command = program(["demo"]);
    command.env("NUM_DEVICES", "0").env("FAIL_PREPARE", "gpu-0").env("NODE_NAME", "Not A Node");
    let demo = run(command);
    assert!(demo.succeeded, "{}", demo.err);
}
