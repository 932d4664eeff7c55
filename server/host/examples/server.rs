//! `server CONFIG`: a complete server from a configuration file, until SIGINT. SIGHUP reloads
//! users, certificates, keys and the policy.

use statestore_server::Server;
use statestore_server::config::Config;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: server CONFIG")?;
    let config = Config::from_file(path)?;
    let server = Server::builder(config).on_event(|event| println!("{event}")).start().await?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            ended = server.wait_ended() => return Ok(ended?),
            _ = interrupt.recv() => break,
            _ = hangup.recv() => tokio::select! {
                reloaded = server.reload() => {
                    reloaded.reports.iter().for_each(|report| println!("{report}"));
                }
                // A slow disk must not delay the stop.
                _ = interrupt.recv() => break,
            },
        }
    }
    Ok(server.stop().await?)
}
