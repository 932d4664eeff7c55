//! etcd, one node, driven over one connection of HTTP/2. Its own load generator is in no package, and a generated client
//! takes a compiler of protocol buffers to build; a PUT is two fields.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Method, Request};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::{Engine, Failure, Figures, Server, VALUE_LEN, key, program};
use crate::race::Lap;

/// An etcd with its defaults.
pub struct Etcd {
    server: Server,
    runtime: Runtime,
    connection: SendRequest<Bytes>,
}

impl Etcd {
    /// Starts one below this folder; `None` where there is none (Debian's package is `etcd-server`).
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(below: &Path) -> Result<Option<Self>, Failure> {
        let Some(binary) = program(&["/usr/bin/etcd", "/usr/local/bin/etcd"]) else {
            return Ok(None);
        };
        let server = Server::start(below.join("etcd"), |folder, port| {
            let url = format!("http://127.0.0.1:{port}");
            let mut command = Command::new(binary);
            command.args(["--name", "one", "--data-dir"]).arg(folder);
            command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
            // Nobody else belongs to it.
            command.args(["--listen-peer-urls", "http://127.0.0.1:0"]);
            command.args(["--logger", "zap", "--log-level", "error"]);
            Ok(command)
        })?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connection = runtime.block_on(connect(server.port))?;
        let mut etcd = Self { server, runtime, connection };
        // It listens before it has a leader, which is itself.
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
}

impl Engine for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let connection = self.connection.clone();
        self.runtime.block_on(async move {
            let lap = Lap::start();
            let mut tasks = JoinSet::new();
            for task in 0..in_flight {
                let connection = connection.clone();
                tasks.spawn(async move {
                    let mut times = Vec::new();
                    for number in (task..requests).step_by(in_flight) {
                        let lap = Lap::start();
                        put(connection.clone(), number).await?;
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
        Some(self.server.child.id())
    }
}

async fn connect(port: u16) -> Result<SendRequest<Bytes>, Failure> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.set_nodelay(true)?;
    // Answers are a few bytes each, and hundreds of them wait to be read.
    let (requests, connection) =
        h2::client::Builder::new().data_frame_budget(1 << 24).handshake(stream).await?;
    tokio::spawn(connection);
    Ok(requests)
}

/// One PUT, and its status.
async fn put(connection: SendRequest<Bytes>, number: usize) -> Result<(), Failure> {
    let request = Request::builder()
        .method(Method::POST)
        .uri("http://127.0.0.1/etcdserverpb.KV/Put")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let (response, mut body) = connection.ready().await?.send_request(request, false)?;
    body.send_data(message(number), true)?;
    let response = response.await?;
    let mut status = response.headers().get("grpc-status").cloned();
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        let length = data?.len();
        body.flow_control().release_capacity(length)?;
    }
    if let Some(trailers) = body.trailers().await? {
        status = trailers.get("grpc-status").cloned().or(status);
    }
    match status {
        Some(status) if status == "0" => Ok(()),
        status => Err(format!("etcd answers {status:?}").into()),
    }
}

/// A `PutRequest` of key and value as gRPC frames it: not compressed, its length, its fields.
fn message(number: usize) -> Bytes {
    let (key, value) = (key(number), [b'v'; VALUE_LEN]);
    let mut fields = Vec::with_capacity(96);
    for (field, bytes) in [(1, key.as_bytes()), (2, &value[..])] {
        let length = u8::try_from(bytes.len()).expect("some ten bytes, in one byte of length");
        fields.extend([field << 3 | 2, length]);
        fields.extend(bytes);
    }
    let length = u32::try_from(fields.len()).expect("a hundred");
    [&[0][..], &length.to_be_bytes(), &fields].concat().into()
}
