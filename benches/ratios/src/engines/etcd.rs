//! etcd, over one HTTP/2 connection. Distributions do not package its load generator, and a
//! generated client requires protoc. The messages used here have few fields.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::grpc::{Connection, Message, fields};
use super::{Engine, Failure, Figures, Server, VALUE_LEN, key, program};
use crate::race::Lap;

/// A way to write a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// A PUT without a condition.
    Blind,
    /// A read, and a transaction that writes if the key has not changed since. A store without a
    /// leader would have to do this.
    Swap,
}

/// An etcd with its defaults.
pub struct Etcd {
    /// `None` if the server belongs to the caller.
    server: Option<Server>,
    write: Write,
    runtime: Runtime,
    connection: Connection,
}

impl Etcd {
    /// Starts a server with its data in a subfolder. Returns `None` if etcd is not installed
    /// (Debian package `etcd-server`).
    ///
    /// # Errors
    /// If the server does not start.
    pub fn start(below: &Path) -> Result<Option<Self>, Failure> {
        let Some(binary) = program(&["/usr/bin/etcd", "/usr/local/bin/etcd"]) else {
            return Ok(None);
        };
        let server = Server::start(below.join("etcd"), |folder, port| {
            let url = format!("http://127.0.0.1:{port}");
            let mut command = Command::new(binary);
            command.args(["--name", "one", "--data-dir"]).arg(folder);
            command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
            // The cluster has only this member.
            command.args(["--listen-peer-urls", "http://127.0.0.1:0"]);
            command.args(["--logger", "zap", "--log-level", "error"]);
            Ok(command)
        })?;
        let mut etcd = Self::at(server.port, Write::Blind)?;
        etcd.server = Some(server);
        // The server listens before it has elected itself.
        let mut tries = 0;
        while let Err(failure) = etcd.run(1, 1) {
            tries += 1;
            if tries > 500 {
                return Err(failure);
            }
            super::pause();
        }
        Ok(Some(etcd))
    }

    /// Connects to a server on a port of this machine.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn at(port: u16, write: Write) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connection = runtime.block_on(Connection::open(port))?;
        Ok(Self { server: None, write, runtime, connection })
    }
}

impl Engine for Etcd {
    fn name(&self) -> &'static str {
        match self.write {
            Write::Blind => "etcd",
            Write::Swap => "compare-and-swap",
        }
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let (connection, write) = (self.connection.clone(), self.write);
        self.runtime.block_on(async move {
            let lap = Lap::start();
            let mut tasks = JoinSet::new();
            for task in 0..in_flight {
                let connection = connection.clone();
                tasks.spawn(async move {
                    let mut times = Vec::new();
                    for number in (task..requests).step_by(in_flight) {
                        let lap = Lap::start();
                        match write {
                            Write::Blind => put(connection.clone(), number).await?,
                            Write::Swap => swap(connection.clone(), number).await?,
                        }
                        times.push(lap.time());
                    }
                    Ok::<Vec<Duration>, Failure>(times)
                });
            }
            let mut times = Vec::with_capacity(requests);
            while let Some(done) = tasks.join_next().await {
                times.extend(done??);
            }
            Ok(Figures::new(&times, lap.time()))
        })
    }

    fn server(&self) -> Option<u32> {
        self.server.as_ref().map(|server| server.child.id())
    }
}

/// Sends one PUT and checks its status.
async fn put(connection: Connection, number: usize) -> Result<(), Failure> {
    let message = Message::default().bytes(1, key(number).as_bytes()).bytes(2, &[b'v'; VALUE_LEN]);
    connection.call("KV/Put", &message).await?;
    Ok(())
}

/// Reads a key and writes it if it has not changed since. Repeats this until it succeeds.
async fn swap(connection: Connection, number: usize) -> Result<(), Failure> {
    let (key, value) = (key(number), [b'v'; VALUE_LEN]);
    loop {
        let read = Message::default().bytes(1, key.as_bytes());
        let read = connection.clone().call("KV/Range", &read).await?;
        // The revision of the last write. Zero if the key does not exist.
        let revision = match fields::bytes(&read, 2)? {
            Some(entry) => fields::number(entry, 3)?.unwrap_or_default(),
            None => 0,
        };
        const REVISION_OF_WRITE: u64 = 2;
        let unchanged = Message::default()
            .number(2, REVISION_OF_WRITE)
            .bytes(3, key.as_bytes())
            .number(6, revision);
        let put = Message::default().bytes(1, key.as_bytes()).bytes(2, &value);
        let operation = Message::default().bytes(2, put.as_bytes());
        let transaction =
            Message::default().bytes(1, unchanged.as_bytes()).bytes(2, operation.as_bytes());
        let response = connection.clone().call("KV/Txn", &transaction).await?;
        if fields::number(&response, 2)? == Some(1) {
            return Ok(());
        }
    }
}
