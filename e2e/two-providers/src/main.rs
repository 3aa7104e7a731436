//! Makes the SDK's client in a program with two providers of cryptography: with the feature `chosen` there is one, without it
//! an error that says what to do; and there is one if the program itself has chosen.

use std::process::ExitCode;

use dra_kubeletplugin::{ClientError, client};
use kube::Config;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let make = || client(Config::new("https://127.0.0.1:1".parse().expect("an address")));
    let first = make();
    let as_expected = if cfg!(feature = "chosen") {
        first.is_ok()
    } else {
        let told = first.as_ref().is_err_and(|error| matches!(error, ClientError::Cryptography { .. }));
        let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        told && installed.is_ok() && make().is_ok()
    };
    println!("{:?}", first.map(drop).map_err(|error| error.to_string()));
    if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
