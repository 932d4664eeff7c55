//! Redis with `appendfsync always` and its load generator `redis-benchmark`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Engine, Failure, Figures, KEYS, Server, VALUE_LEN, program};

/// A Redis whose writes are on the disk before it acknowledges them.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    benchmark: PathBuf,
}

impl Redis {
    /// Starts a server with its data in a subfolder. Returns `None` if Redis is not installed
    /// (Debian package `redis-server`).
    ///
    /// # Errors
    /// If the server does not start.
    pub fn start(below: &Path) -> Result<Option<Self>, Failure> {
        let (Some(binary), Some(benchmark)) =
            (program(&["/usr/bin/redis-server"]), program(&["/usr/bin/redis-benchmark"]))
        else {
            return Ok(None);
        };
        let server = Server::start(below.join("redis"), |folder, port| {
            std::fs::create_dir_all(folder)?;
            let mut command = Command::new(binary);
            command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]);
            command.arg(folder).args(["--appendonly", "yes", "--appendfsync", "always"]);
            command.args(["--no-appendfsync-on-rewrite", "no", "--save", ""]);
            Ok(command)
        })?;
        Ok(Some(Self { server, benchmark }))
    }
}

impl Engine for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let mut benchmark = Command::new(&self.benchmark);
        benchmark.args(["-p", &self.server.port.to_string(), "-t", "set", "--csv"]);
        benchmark.args(["-n", &requests.to_string(), "-c", &in_flight.to_string()]);
        benchmark.args(["-d", &VALUE_LEN.to_string(), "-r", &KEYS.to_string()]);
        let output = benchmark.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        // "SET", requests per second, then milliseconds: mean, minimum, p50, p95, p99, maximum.
        let figures: Option<Vec<f64>> =
            text.lines().find(|line| line.starts_with("\"SET\"")).map(|line| {
                line.split(',').filter_map(|word| word.trim_matches('"').parse().ok()).collect()
            });
        match figures.as_deref() {
            Some([rate, _, _, p50, _, p99, ..]) if *rate > 0.0 => {
                Ok(Figures { each: 1e6 / rate, p50: p50 * 1e3, p99: p99 * 1e3 })
            }
            _ => Err(format!("no figures in the output of redis-benchmark: {text}").into()),
        }
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.child.id())
    }
}
