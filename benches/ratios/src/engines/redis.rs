//! Redis with `appendfsync always`, driven by its own `redis-benchmark`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Engine, Failure, Figures, KEYS, Server, VALUE_LEN, program};

/// A Redis that has each write on the disk before it answers.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    benchmark: PathBuf,
}

impl Redis {
    /// Starts one below this folder; `None` where there is none (Debian's package is `redis-server`).
    ///
    /// # Errors
    /// When it does not start.
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
        // "SET","12345.6","0.05",...: requests a second, then milliseconds: mean, least, p50, p95, p99, most.
        let figures: Option<Vec<f64>> =
            text.lines().find(|line| line.starts_with("\"SET\"")).map(|line| {
                line.split(',').filter_map(|word| word.trim_matches('"').parse().ok()).collect()
            });
        match figures.as_deref() {
            Some([rate, _, _, p50, _, p99, ..]) if *rate > 0.0 => {
                Ok(Figures { each: 1e6 / rate, p50: p50 * 1e3, p99: p99 * 1e3 })
            }
            _ => Err(format!("redis-benchmark says {text}").into()),
        }
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.child.id())
    }
}
