//! Postgres with its defaults and its load generator `pgbench`.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Engine, Failure, Figures, KEYS, Server, VALUE_LEN};
use crate::race::percentile;

/// One upsert of a random key, in one transaction.
const SCRIPT: &str = "\\set number random(1, KEYS)\n\
    insert into entries values (:number, repeat('v', VALUE_LEN)) \
    on conflict (key) do update set value = excluded.value;\n";

/// A Postgres with one table.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    programs: PathBuf,
    script: PathBuf,
    user: Option<(u32, u32)>,
}

impl Postgres {
    /// Starts a server with its data in a subfolder. Returns `None` if Postgres is not installed
    /// (Debian package `postgresql`).
    ///
    /// # Errors
    /// If the server does not start.
    pub fn start(below: &Path) -> Result<Option<Self>, Failure> {
        let Some(programs) = programs() else { return Ok(None) };
        let user = user_for(below)?;
        let folder = below.join("postgres");
        fs::create_dir_all(&folder)?;
        let script = below.join("upsert.sql");
        let text = SCRIPT.replace("KEYS", &KEYS.to_string());
        fs::write(&script, text.replace("VALUE_LEN", &VALUE_LEN.to_string()))?;
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(&folder, Some(user), Some(group))?;
        }
        let mut init = as_user(&programs.join("initdb"), user, below);
        init.args(["--auth", "trust", "--username", "postgres", "--pgdata"]).arg(&folder);
        done(&mut init)?;
        let server = Server::start(folder, |folder, port| {
            let mut command = as_user(&programs.join("postgres"), user, below);
            command.arg("-D").arg(folder).args(["-p", &port.to_string()]);
            command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=600"]);
            command.args(["-c", "unix_socket_directories="]);
            Ok(command)
        })?;
        let postgres = Self { server, programs, script, user };
        let mut create = postgres.client("psql");
        create.args(["-q", "-c", "create table entries (key bigint primary key, value text)"]);
        // The server listens before it accepts clients.
        let mut tries = 0;
        while let Err(failure) = done(&mut create) {
            tries += 1;
            if tries > 500 {
                return Err(failure);
            }
            super::pause();
        }
        Ok(Some(postgres))
    }

    fn client(&self, program: &str) -> Command {
        let port = self.server.port.to_string();
        let mut command = as_user(&self.programs.join(program), self.user, &self.server.folder);
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port]);
        command
    }
}

impl Engine for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let logs = self.server.folder.join("pgbench");
        let mut benchmark = self.client("pgbench");
        benchmark.args(["-n", "-M", "prepared", "-c", &in_flight.to_string(), "-j", "1", "-f"]);
        benchmark.arg(&self.script).args(["-t", &requests.div_ceil(in_flight).to_string()]);
        benchmark.arg("--log").arg("--log-prefix").arg(&logs).arg("postgres");
        let text = done(&mut benchmark)?;
        let rate = text.lines().find_map(|line| {
            line.strip_prefix("tps = ")?.split_whitespace().next()?.parse::<f64>().ok()
        });
        let Some(rate) = rate.filter(|rate| *rate > 0.0) else {
            return Err(format!("no rate in the output of pgbench: {text}").into());
        };
        // One line per transaction: client, number, microseconds, ...
        let mut times = Vec::new();
        for entry in fs::read_dir(&self.server.folder)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"pgbench"))
            {
                let text = fs::read_to_string(&path)?;
                times.extend(text.lines().filter_map(|line| {
                    line.split_whitespace().nth(2).and_then(|word| word.parse::<f64>().ok())
                }));
                fs::remove_file(path)?;
            }
        }
        let (p50, p99) = (percentile(times.clone(), 50), percentile(times, 99));
        Ok(Figures { each: 1e6 / rate, p50, p99 })
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.child.id())
    }
}

/// Returns the programs of the newest version. Debian has a folder for each version.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    folders.filter(|folder| folder.join("initdb").exists()).max()
}

/// Returns the user and group of the Debian package if this process runs as root, since Postgres
/// refuses to run as root.
fn user_for(folder: &Path) -> Result<Option<(u32, u32)>, Failure> {
    use std::os::unix::fs::MetadataExt as _;
    if fs::metadata(folder)?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let mut ids = line.into_iter().flat_map(|line| line.split(':').skip(2));
    match (ids.next().map(str::parse), ids.next().map(str::parse)) {
        (Some(Ok(user)), Some(Ok(group))) => Ok(Some((user, group))),
        _ => Err("the user postgres does not exist".into()),
    }
}

fn as_user(program: &Path, user: Option<(u32, u32)>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    if let Some((user, group)) = user {
        command.uid(user).gid(group);
    }
    command
}

fn done(command: &mut Command) -> Result<String, Failure> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}
