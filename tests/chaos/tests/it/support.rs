//! A real store, its clients, and files of one test.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{env, fs, process};

use statestore_client::{Options, StateStore, connect_with};
use statestore_server::proto::store::StoreConfig;
use statestore_server::{Broker, StoreService, serve_with};
use tokio::runtime::Runtime;

/// Returns the command, without the environment variables of the tests.
pub(crate) fn tools() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statestore-chaos"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("STATESTORE_") {
            command.env_remove(name);
        }
    }
    command
}

/// A store with an embedded broker on a free port. It explains refusals.
pub(crate) struct Store {
    pub(crate) runtime: Runtime,
    broker: Broker,
    _service: StoreService,
}

impl Store {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let options = statestore_server::Options::new((Ipv4Addr::LOCALHOST, 0));
        let config = StoreConfig::new(fastrand::u64(..)).explain(true);
        let service = StoreService::builder().config(config).expect("no durability");
        let (broker, service) = runtime.block_on(serve_with(options, service)).expect("a broker");
        Self { runtime, broker, _service: service }
    }

    pub(crate) fn port(&self) -> u16 {
        self.broker.local_addr().port()
    }

    /// Returns a client of the store that connects to this port.
    pub(crate) fn client(&self, port: u16) -> StateStore {
        let id = format!("client-{:016x}", fastrand::u64(..));
        connect_with(Options::new(id, "127.0.0.1", port), |builder| {
            builder.timeout(Duration::from_secs(20)).runtime(self.runtime.handle().clone())
        })
        .expect("a client")
    }
}

/// A file of one test. Dropping it removes the file.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = env::temp_dir().join(format!("statestore-chaos-{}-{name}", process::id()));
        fs::write(&path, content).expect("a writable directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
