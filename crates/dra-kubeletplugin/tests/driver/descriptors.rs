//! A process that has no file descriptor left. The limit is a child's, so that other tests keep theirs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use crate::support::{Direct, Rig, TestDriver, device};

const CHILD: &str = "DRA_TEST_FEW_DESCRIPTORS";
const NAME: &str =
    "descriptors::without_file_descriptors_claims_fail_alone_and_work_again_once_there_are_some";

/// All descriptors that are left, also those that background work gives back.
async fn all_descriptors() -> Vec<File> {
    let mut files = Vec::new();
    for _ in 0..10 {
        loop {
            match File::open("/dev/null") {
                Ok(file) => files.push(file),
                Err(error) => {
                    assert!(error.to_string().contains("Too many open files"), "{error}");
                    assert!(files.len() < 1000, "the limit is the child's");
                    break;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    files
}

#[test]
fn without_file_descriptors_claims_fail_alone_and_work_again_once_there_are_some() {
    if std::env::var_os(CHILD).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(few_descriptors());
    }
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 128 && exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg(NAME)
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}\n{}", String::from_utf8_lossy(&child.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

/// What this process has used of the processors, as its open `/proc/self/stat` tells in ticks of 10 ms.
fn processor_time(stat: &File) -> Duration {
    let mut bytes = [0; 1024];
    let length = stat.read_at(&mut bytes, 0).unwrap();
    let text = String::from_utf8_lossy(&bytes[..length]);
    // Fields 14 and 15; the second one, a name in brackets, may contain anything.
    let after_name = text.rsplit(") ").next().unwrap().split(' ').collect::<Vec<_>>();
    let ticks: u64 = after_name[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

async fn few_descriptors() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    // It would take and give back descriptors all the time.
    rig.kubelet.stop().await;
    let (_handle, direct) = Direct::start(&rig, driver.clone(), rig.options()).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-1")]));
    direct.prepare_one(&one).await.unwrap();

    let taken = all_descriptors().await;
    for _ in 0..3 {
        for answer in [direct.prepare_one(&two).await.map(drop), direct.unprepare_one(&one).await] {
            let error = answer.unwrap_err();
            assert!(error.contains("Too many open files"), "{error}");
        }
    }
    drop(taken);
    direct.prepare_one(&two).await.unwrap();
    direct.unprepare_one(&one).await.unwrap();

    // A caller that comes while none is left for the driver's end of its connection is served later.
    let stat = File::open("/proc/self/stat").unwrap();
    let mut taken = all_descriptors().await;
    taken.pop();
    let caller = UnixStream::connect(&direct.socket).unwrap();
    direct.unprepare_one(&two).await.unwrap_err();
    let before = processor_time(&stat);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = processor_time(&stat).saturating_sub(before);
    assert!(used < Duration::from_millis(200), "it waits, and does not spin: {used:?} in a second");
    drop((taken, caller));
    direct.unprepare_one(&two).await.unwrap();
    direct.prepare_one(&two).await.unwrap();
    let calls = ["prepare one: gpu-0", "prepare two: gpu-1", "unprepare one: gpu-0 (Unprepare)"];
    assert_eq!(driver.log()[..3], calls);
    assert_eq!(rig.files(), rig.files_of(&[&two]));
}
