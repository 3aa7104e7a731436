//! The driver of the README.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{context::Context, pod::ShellPod, scenario::Scenario};

const NAME: &str = "hello.example.com";

const OBJECTS: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: hello.example.com
spec:
  selectors:
    - cel:
        expression: device.driver == 'hello.example.com'
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: french
spec:
  spec:
    devices:
      requests:
        - name: greeting
          exactly:
            deviceClassName: hello.example.com
            selectors:
              - cel:
                  expression: device.attributes['hello.example.com'].greeting == 'bonjour'
";

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("hello_driver_greets_a_container", |cx| Box::pin(greeting(cx)))]
}

async fn greeting(cx: &Context) -> Result<()> {
    let _driver = cx.start_driver("hello-driver", &[])?;
    cx.wait_devices(NAME, 2, Duration::from_secs(15)).await?;
    cx.apply(OBJECTS).await?;
    cx.create_pod(&ShellPod::print_env("p").template("french").build()).await?;
    cx.wait_running("p", Duration::from_secs(30)).await?;
    let greeting = cx.wait_log_line("p", "GREETING=", Duration::from_secs(10)).await?;
    ensure!(greeting == "bonjour", "the container sees GREETING={greeting}");
    cx.delete_pod("p", Duration::from_secs(30)).await
}
