//! `serve` under systemd: notifications of a supervisor, and packaged files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use statestore_testkit::process::HANGS;

use crate::embedded_broker::Scratch;
use crate::process::{Running, run, run_with_input, statestore};
/// The socket on which a supervisor receives notifications.
struct Supervisor(UnixDatagram, Scratch);

impl Supervisor {
    fn new(name: &str) -> Self {
        let at = Scratch::new(name);
        let socket = UnixDatagram::bind(at.path()).expect("a socket");
        socket.set_read_timeout(Some(HANGS)).expect("a socket");
        Self(socket, at)
    }

    /// Returns the next message that contains this text.
    fn until(&self, part: &str) -> String {
        loop {
            let mut bytes = [0; 4_096];
            let len = self.0.recv(&mut bytes).expect("another message in time");
            let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
            if text.contains(part) {
                return text;
            }
        }
    }
}

#[test]
fn supervisor_is_notified_of_each_state() {
    let (supervisor, users) = (Supervisor::new("notify"), Scratch::new("notify-users"));
    run_with_input(statestore().args(["passwd", users.path(), "ann"]), b"secret\n").is(0, "");
    let mut serve = statestore();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--password-file", users.path()]);
    let serve = Running::start(
        serve.env("NOTIFY_SOCKET", supervisor.1.path()).env("WATCHDOG_USEC", "100000"),
    );
    let ready = supervisor.until("READY=1");
    assert!(ready.contains("STATUS=ready on mqtt://127.0.0.1:"), "{ready}");
    supervisor.until("WATCHDOG=1");
    supervisor.until("WATCHDOG=1");
    serve.signal("-HUP");
    let reloading = supervisor.until("RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    supervisor.until("READY=1");
    serve.signal("-TERM");
    supervisor.until("STOPPING=1");
    assert_eq!(serve.end().code, Some(0));
}

/// Notifications that cannot be sent do not affect the store. A watchdog for another process is
/// ignored.
#[test]
fn unread_notifications_do_not_block_the_store() {
    let supervisor = Supervisor::new("deaf");
    for socket in [supervisor.1.path(), "/no/such/socket", "@no-such-socket", "", "@"] {
        let mut serve = statestore();
        serve.args(["serve", "--listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", socket);
        // So short an interval that the unread socket is full at once.
        let serve = Running::start(serve.env("WATCHDOG_USEC", "1"));
        let line = serve.line();
        let url = line.split(';').next().and_then(|line| line.rsplit(' ').next());
        run(statestore().args(["set", "k", "v", "--broker", url.expect("an address")])).version();
        serve.signal("-TERM");
        assert_eq!(serve.end().code, Some(0), "{socket}");
    }
    let mut serve = statestore();
    serve.args(["serve", "--listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", supervisor.1.path());
    let supervisor = Supervisor::new("other");
    serve
        .env("NOTIFY_SOCKET", supervisor.1.path())
        .env("WATCHDOG_USEC", "1")
        .env("WATCHDOG_PID", "1");
    let serve = Running::start(&mut serve);
    supervisor.until("READY=1");
    serve.signal("-TERM");
    assert!(!supervisor.until("STOPPING=1").contains("WATCHDOG"));
    serve.end();
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn packaged_configuration_is_valid_with_and_without_its_comments() {
    let file = folder().join("systemd/statestore.toml");
    let origin = format!("listen = [\"127.0.0.1:1883\"] # {}:5", file.display());
    let mut print = statestore();
    print.args(["serve", "--print-config", "--config"]).arg(&file);
    let printed = run(&mut print);
    assert!(printed.text().lines().any(|line| line == origin), "{printed:?}");
    let text = fs::read_to_string(&file).expect("the file");
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|line| line.contains(" = ")).unwrap_or(line))
        .filter(|line| !line.contains("127.0.0.1"))
        .collect();
    let all = Scratch::new("unit.toml");
    let text = lines.join("\n").replace("[storage]", "[storage]\ndata-dir = \"/d\"");
    fs::write(all.path(), text).expect("a file");
    let printed = run(statestore().args(["serve", "--print-config", "--config", all.path()]));
    assert!(printed.text().contains(&format!("durable = \"all\" # {}", all.path())), "{printed:?}");
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = fs::read_to_string(folder().join("systemd/statestore.service")).expect("the unit");
    // Without systemd, at least the options of the started command are checked.
    let starts = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/statestore "));
    let starts = starts.expect("a command").replace("${STATE_DIRECTORY}", "/var/lib/x");
    let file = folder().join("systemd/statestore.toml");
    let starts = starts.replace("/etc/statestore/statestore.toml", file.to_str().expect("text"));
    let mut print = statestore();
    print.args(starts.split(' ')).arg("--print-config");
    assert!(run(&mut print).text().contains("data-dir = \"/var/lib/x\" # command line"));
    let here = Scratch::new("statestore.service");
    let own = env!("CARGO_BIN_EXE_statestore");
    fs::write(here.path(), unit.replace("/usr/bin/statestore", own)).expect("a file");
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no", here.path()]).output();
    let Ok(verify) = verify else {
        println!("skipped: no systemd-analyze to verify the unit");
        return;
    };
    let errors = String::from_utf8_lossy(&verify.stderr).into_owned();
    // Errors of other units do not matter.
    let about: Vec<&str> = errors.lines().filter(|line| line.contains("statestore")).collect();
    assert!(about.is_empty(), "{about:?}");
}

/// User and group id of the service in these tests; not in `/etc/passwd`.
const SERVICE_ID: u32 = 64_321;

/// A directory with the packaged configuration, all its settings in force, and the files it names.
/// They belong to root, and the group of the service can read them.
struct Installed(PathBuf);

impl Installed {
    fn new() -> Self {
        let name = format!("statestore-installed-{}", std::process::id());
        let installed = Self(std::env::temp_dir().join(name));
        let made = installed.path("certificates");
        fs::create_dir_all(&made).expect("a directory");
        fs::create_dir(installed.path("data")).expect("a directory");
        fs::copy(env!("CARGO_BIN_EXE_statestore"), installed.path("statestore")).expect("a copy");
        let text = fs::read_to_string(folder().join("systemd/statestore.toml")).expect("the file");
        // All settings, also those in comments.
        let lines = text.lines().map(|line| {
            line.strip_prefix("# ").filter(|line| line.contains(" = ")).unwrap_or(line)
        });
        let text = lines.filter(|line| !line.contains("127.0.0.1")).collect::<Vec<_>>().join("\n");
        let text = text.replace("0.0.0.0:8883", "127.0.0.1:0");
        let text = text.replace("/etc/statestore", installed.0.to_str().expect("text"));
        fs::write(installed.path("statestore.toml"), text).expect("a file");
        run(statestore().arg("certificates").arg(&made));
        fs::copy(made.join("server.pem"), installed.path("broker.pem")).expect("a copy");
        fs::copy(made.join("server.key"), installed.path("broker.key")).expect("a copy");
        fs::write(installed.path("policy.yaml"), "rules: []\n").expect("a file");
        let users = installed.path("users");
        run_with_input(statestore().arg("passwd").arg(users).arg("lamp"), b"secret\n");
        let all = ["statestore.toml", "broker.pem", "broker.key", "policy.yaml", "users"];
        all.into_iter().for_each(|name| installed.set_owner_and_mode(name, 0, 0o640));
        installed.set_owner_and_mode("data", SERVICE_ID, 0o700);
        installed.set_owner_and_mode("statestore", 0, 0o755);
        fs::set_permissions(&installed.0, fs::Permissions::from_mode(0o755)).expect("a mode");
        installed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn set_owner_and_mode(&self, name: &str, user: u32, mode: u32) {
        let path = self.path(name);
        std::os::unix::fs::chown(&path, Some(user), Some(SERVICE_ID)).expect("an owner");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }

    /// The command of the unit, as its user.
    fn command(&self) -> Command {
        let unit =
            fs::read_to_string(folder().join("systemd/statestore.service")).expect("the unit");
        let starts = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
        let starts = starts.expect("a command").replace("/etc/statestore", path_text(&self.0));
        let starts = starts.replace("${STATE_DIRECTORY}", path_text(&self.path("data")));
        let (program, arguments) = starts.split_once(' ').expect("arguments");
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &SERVICE_ID.to_string(), "--regid", &SERVICE_ID.to_string()])
            .args(["--clear-groups", "--no-new-privs"])
            .arg(self.path(program))
            .args(arguments.split(' '))
            .current_dir("/");
        command
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn command_of_the_unit_starts_as_its_user_with_files_of_its_group() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root || Command::new("setpriv").arg("--version").output().is_err() {
        println!("skipped: another user requires root and setpriv");
        return;
    }
    let installed = Installed::new();
    let serve = Running::start(&mut installed.command());
    let line = serve.line();
    assert!(line.contains("mqtts://127.0.0.1:") && line.contains("all keys survive"), "{line}");
    serve.signal("-TERM");
    serve.end();
    // A key that only root can read is named.
    installed.set_owner_and_mode("broker.key", 0, 0o600);
    let refused = run(&mut installed.command());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("broker.key"), "{refused:?}");
}

/// Returns the arguments of the command in the image, and a copy of the configuration there.
fn image_start(name: &str, image: &str) -> (Vec<String>, Scratch) {
    let line = |start: &str| image.lines().rev().find_map(|line| line.strip_prefix(start));
    let words: Vec<String> =
        serde_json::from_str(line("ENTRYPOINT ").expect("it")).expect("a list");
    let config = line("ENV STATESTORE_SERVE_CONFIG=").expect("a configuration");
    let copied = image.lines().filter_map(|line| line.strip_suffix(config)?.strip_prefix("COPY "));
    let [source] = copied.collect::<Vec<_>>()[..] else { panic!("{config} is copied once") };
    let file = Scratch::new(name);
    fs::copy(folder().join("..").join(source.trim()), file.path()).expect("the configuration");
    (words[1..].to_vec(), file)
}

/// Returns the number of the first line with this beginning.
fn line_of(file: &Scratch, start: &str) -> usize {
    let text = fs::read_to_string(file.path()).expect("a file");
    text.lines().position(|line| line.starts_with(start)).expect(start) + 1
}

#[test]
fn packages_and_image_name_existing_files_and_options() {
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).expect("the file");
    let (_, assets) = manifest.split_once("\nassets = [").expect("a list");
    let (assets, _) = assets.split_once("\n]").expect("its end");
    let mut files =
        assets.lines().filter_map(|line| line.trim().strip_prefix("[\"")?.split('"').next());
    assert!(files.clone().count() >= 4, "{assets}");
    assert!(
        files.all(|file| file.starts_with("target/") || folder().join(file).exists()),
        "{assets}"
    );
    let image = fs::read_to_string(folder().join("container/Containerfile")).expect("the file");
    let (serve, file) = image_start("image-printed.toml", &image);
    let printed = run(statestore().args(&serve).args(["--config", file.path(), "--print-config"]));
    // No program outside of the container reaches its loopback address.
    let at = |line: usize| format!("# {}:{line}", file.path());
    let listen = format!("listen = [\"0.0.0.0:1883\"] {}", at(line_of(&file, "listen =")));
    assert!(printed.text().contains(&listen), "{printed:?}");
    let health = image.lines().find_map(|line| line.split_once(" CMD ")).expect("a check").1;
    let words: Vec<String> = serde_json::from_str(health).expect("a list");
    let [program, verb, check, option, url] = &words[..] else { panic!("{words:?}") };
    let expected = ["/usr/bin/statestore", "status", "--ready", "--metrics-url"];
    assert_eq!([&**program, verb, check, option], expected);
    // The health check uses the metrics listener of the image.
    let address = url.strip_prefix("http://").expect(url);
    let line = format!("metrics-listen = \"{address}\" {}", at(line_of(&file, "metrics-listen")));
    assert!(printed.text().contains(&line), "{printed:?}");
}

#[test]
fn image_serves_other_machines_only_with_a_policy_or_allow_anonymous() {
    let image = fs::read_to_string(folder().join("container/Containerfile")).expect("the file");
    let (serve, file) = image_start("image-started.toml", &image);
    let text = fs::read_to_string(file.path()).expect("a file");
    fs::write(file.path(), text.replace(":1883", ":0").replace(":9464", ":0")).expect("a file");
    let data = Scratch::new("image-data");
    let start = |options: &[&str]| {
        let mut command = statestore();
        command.args(&serve[..1]).args(["--config", file.path(), "--data-dir", data.path()]);
        command.args(options);
        command
    };
    let expected = [file.path(), "policy", "allow-anonymous"];
    run(&mut start(&[])).fails(2, &expected);
    let users = Scratch::new("image-users");
    run_with_input(statestore().args(["passwd", users.path(), "ann"]), b"secret\n").is(0, "");
    run(&mut start(&["--password-file", users.path()])).fails(2, &expected);
    let store = Running::start(&mut start(&["--allow-anonymous"]));
    let line = store.line();
    assert!(line.contains("mqtt://0.0.0.0:"), "{line}");
    assert!(line.contains("every machine that reaches these addresses can connect"), "{line}");
}
