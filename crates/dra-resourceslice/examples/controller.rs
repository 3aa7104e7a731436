//! A control-plane driver: publishes a pool of network-attached devices, without any kubelet plugin.
//!
//! Run one instance of it (or use leader election): `cargo run -p dra-resourceslice --example controller`.

use std::error::Error;

use dra_resourceslice::{
    Device, DriverName, DriverResources, Gate, Placement, Pool, PoolName, Publisher, Scope, kube,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = PoolName::new("rack-1/appliances")?;
    let scope = Scope::network_pool(DriverName::new("appliance.example.com")?, pool.clone());
    let devices: Vec<_> = (0..4).map(appliance).collect::<Result<_, _>>()?;
    let resources = DriverResources::new().pool(pool, Pool::new(devices).placement(Placement::AllNodes));

    let client = kube::Client::try_default().await?;
    let publisher = Publisher::start(client, scope, Gate::always_open(), |error| eprintln!("{error}"));
    let outcome = publisher.publish(resources).published().await?;
    println!("published at generation {}; Ctrl-C removes the pool", outcome.generation);

    tokio::signal::ctrl_c().await?;
    publisher.remove_all().published().await?;
    publisher.stop().await;
    Ok(())
}

fn appliance(index: u32) -> Result<Device, Box<dyn Error>> {
    let device = Device::named(&format!("appliance-{index}"))?
        .try_attribute("index", index)?
        .try_attribute("model", "EXAMPLE")?;
    Ok(device)
}
