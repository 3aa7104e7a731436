//! The smallest whole DRA driver: two "greeting" devices; a container that claims one finds it in its environment.

use clap::Parser;
use dra_kubeletplugin::{
    AllocatedClaim, ContainerEdits, Device, DriverPlugin, DriverResources, HeldClaim, NodeName, Options,
    PluginError, PrepareContext, Prepared, client, kube, signals,
};

const DEVICES: [(&str, &str); 2] = [("english", "hello"), ("french", "bonjour")];

struct Greetings;

impl DriverPlugin for Greetings {
    type State = ();

    async fn prepare(&self, claim: &AllocatedClaim, _: &PrepareContext<()>) -> Result<Prepared, PluginError> {
        let mut prepared = Prepared::new(());
        for device in claim.devices() {
            let known = DEVICES.iter().find(|(name, _)| *name == device.device().as_str());
            let (_, greeting) = known.ok_or_else(|| PluginError::new("there is no such greeting"))?;
            prepared = prepared.device(device, ContainerEdits::new().env("GREETING", *greeting));
        }
        Ok(prepared)
    }

    async fn unprepare(&self, _claim: &HeldClaim<()>) -> Result<(), PluginError> {
        Ok(())
    }
}

#[derive(Parser)]
struct Cli {
    /// Node that this driver runs on.
    #[arg(long, env = "NODE_NAME")]
    node_name: NodeName,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let node = Cli::parse().node_name;
    let stop = signals::terminate()?;
    let client = client(kube::Config::infer().await?)?;
    let pool = node.as_str().parse()?;
    let plugin = Options::new("hello.example.com".parse()?, node, client).start(Greetings).await?;
    let devices = DEVICES.map(|(name, greeting)| Device::named(name)?.try_attribute("greeting", greeting));
    let devices = devices.into_iter().collect::<Result<Vec<_>, _>>()?;
    let _ticket = plugin.publish(DriverResources::single_pool(pool, devices));
    Ok(plugin.shutdown_on(stop).await?)
}
