//! How many requests an hour of trouble takes. `docs/operations.md` has these figures.

use super::{
    fake::{Call, Fault},
    *,
};
use crate::{Feature, Taint};

const HOUR: Duration = Duration::from_secs(3600);

fn creates(fault: Fault) -> impl FnMut(&Call) -> Option<Fault> + Send {
    move |call| (call.verb == "create").then_some(fault)
}

/// Watches, lists and writes of an hour in which something is done each second.
async fn hour(api: &FakeApi, mut each_second: impl FnMut(i64)) -> [usize; 3] {
    api.forget_calls();
    let end = tokio::time::Instant::now() + HOUR;
    let mut second = 0;
    while tokio::time::Instant::now() < end {
        second += 1;
        each_second(second);
        pass(SECOND).await;
    }
    [api.count("watch"), api.count("list"), api.writes().len()]
}

fn tainted(value: i64) -> DriverResources {
    let device = device("gpu-0").try_attribute("a", value).unwrap().taint(Taint::no_schedule("k"));
    DriverResources::single_pool(pool_name(), [device])
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_trouble_takes_no_more_requests_than_the_document_says() {
    let document = include_str!("../../../../../docs/operations.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(" | ").collect()).collect();
    let nothing = |_: i64| {};
    let mut failures = Vec::new();
    for what in [
        "nothing happens",
        "each write is answered with 429 and `Retry-After: 30`, the driver publishes something else each second",
        "each request is answered with 503",
        "each write is denied with 422",
        "each write is denied with 422, the driver publishes something else each second",
        "the driver publishes something else each second",
        "something else deletes the slice each second",
        "an API server that drops taints and one that does not take turns each minute",
    ] {
        let row = rows.iter().find(|row| row[0] == what).unwrap_or_else(|| panic!("no row {what:?}"));
        let most: Vec<usize> = row[1..4].iter().map(|cell| cell.replace(',', "").parse().unwrap()).collect();
        let api = FakeApi::new();
        let setup = Setup::on(&api);
        setup.publisher.remove_all().published().await.unwrap();
        let publish = |value: i64| drop(setup.publisher.publish(tainted(value)));
        let counted = match what {
            "nothing happens" => {
                setup.publish(tainted(0)).await;
                hour(&api, nothing).await
            }
            "each request is answered with 503" => {
                setup.publish(tainted(0)).await;
                api.faults(|_| Some(Fault::Status(503)));
                api.end_watches();
                publish(1);
                hour(&api, nothing).await
            }
            "each write is denied with 422" => {
                api.faults(creates(Fault::Status(422)));
                publish(0);
                hour(&api, nothing).await
            }
            "the driver publishes something else each second" => hour(&api, publish).await,
            "something else deletes the slice each second" => {
                setup.publish(tainted(0)).await;
                hour(&api, |_| api.delete_all()).await
            }
            "an API server that drops taints and one that does not take turns each minute" => {
                setup.publish(tainted(0)).await;
                let switched = |second: i64| {
                    if second % 60 == 0 {
                        let off: &[Feature] = if second % 120 == 0 { &[] } else { &[Feature::DeviceTaints] };
                        api.drop_fields_of(off);
                        api.end_watches();
                        publish(second);
                    }
                };
                hour(&api, switched).await
            }
            _ => {
                let retry_after = what.contains("429");
                api.faults(creates(if retry_after {
                    Fault::RetryAfter(429, 30)
                } else {
                    Fault::Status(422)
                }));
                hour(&api, publish).await
            }
        };
        let is_told = |counted: usize, most: usize| counted <= most && (2 * counted >= most || most <= 10);
        if !counted.into_iter().zip(&most).all(|(counted, most)| is_told(counted, *most)) {
            failures.push(format!("{what}: {counted:?}, not nearly or more than {most:?}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
