//! etcd, over one HTTP/2 connection. Distributions do not package its load generator, and a
//! generated client requires protoc. The messages used here have few fields.

use std::time::Duration;

use statestore_testkit::brokers::Etcd as Member;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::grpc::{Connection, Message, fields};
use super::{Engine, Failure, Figures, VALUE_LEN, key};
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
    member: Option<Member>,
    write: Write,
    runtime: Runtime,
    connection: Connection,
}

impl Etcd {
    /// Starts a server with its data in the folder for temporary files. Returns `None` if etcd is
    /// not installed (Debian package `etcd-server`).
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start() -> Result<Option<Self>, Failure> {
        let Some(member) = Member::start("durable") else { return Ok(None) };
        let mut etcd = Self::at(member.port(), Write::Blind)?;
        etcd.member = Some(member);
        Ok(Some(etcd))
    }

    /// Connects to a server on a port of this machine.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn at(port: u16, write: Write) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connection = runtime.block_on(Connection::open(port))?;
        Ok(Self { member: None, write, runtime, connection })
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
        self.member.as_ref().and_then(Member::process_id)
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
