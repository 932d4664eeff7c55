//! The broker of `serve` itself, its password file and its policy.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{FlockOperation, flock};
use statestore_embedded::policy::CertificateAttributes;
use statestore_embedded::{
    Broker, CertificateName, CertificateUsers, Limits, Options, ServiceAccountKeys,
    ServiceAccounts, SharedUsers, Users, tls_config,
};

use crate::args::{Listen, Passwd};
use crate::connection::read;
use crate::failure::Failure;
use crate::output::say;
use crate::policy::{PolicyFile, counted, text};
use crate::secret::new_password;

/// The users that a broker asks for, and the file that has them.
pub(crate) struct PasswordFile {
    path: PathBuf,
    users: SharedUsers,
}

impl PasswordFile {
    /// Reads the file again. One that is of no use changes nothing.
    fn reload(&self) {
        let path = self.path.display();
        match users(&self.path) {
            // More likely half written than meant.
            Ok(users) if users.is_empty() => {
                say(format_args!("{path}: there is no user in it; nothing has changed"));
            }
            Ok(users) => {
                say(format_args!("{path}: read again: {} users from now on", users.len()));
                self.users.replace(users);
            }
            Err(failure) => say(format_args!("{failure}; nothing has changed")),
        }
    }
}

/// The attributes of certificates, and the file that has them.
pub(crate) struct AttributesFile {
    path: PathBuf,
    users: CertificateUsers,
}

impl AttributesFile {
    /// Reads the file again. One that is of no use changes nothing.
    fn reload(&self) {
        let path = self.path.display();
        match attributes(&self.path) {
            Ok(read) => {
                say(format_args!(
                    "{path}: read again: attributes of {}",
                    counted(read.len(), "subject")
                ));
                self.users.replace_attributes(read);
            }
            Err(failure) => say(format_args!("{failure}; nothing has changed")),
        }
    }
}

/// The keys of whoever issues tokens, and the file that has them.
pub(crate) struct KeysFile {
    path: PathBuf,
    accounts: ServiceAccounts,
}

impl KeysFile {
    /// Reads the file again. One that is of no use changes nothing.
    fn reload(&self) {
        match keys(&self.path) {
            Ok(read) => {
                let (path, count) = (self.path.display(), counted(read.len(), "key"));
                say(format_args!("{path}: read again: {count} from now on"));
                self.accounts.replace_keys(read);
            }
            Err(failure) => say(format_args!("{failure}; nothing has changed")),
        }
    }
}

/// Files that are read again when somebody says so.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) passwords: Option<PasswordFile>,
    pub(crate) attributes: Option<AttributesFile>,
    pub(crate) keys: Option<KeysFile>,
    pub(crate) policy: Option<PolicyFile>,
}

impl Files {
    /// Reads all of them again. One that is of no use changes nothing.
    pub(crate) async fn reload(&self, broker: Option<&Broker>) {
        let Self { passwords, attributes, keys, policy } = self;
        if passwords.is_none() && attributes.is_none() && keys.is_none() && policy.is_none() {
            return say(
                "SIGHUP: there is no --password-file, --certificate-attributes, --service-account-keys or --policy to \
                 read again",
            );
        }
        if let Some(passwords) = &self.passwords {
            passwords.reload();
        }
        if let Some(attributes) = &self.attributes {
            attributes.reload();
        }
        if let Some(keys) = &self.keys {
            keys.reload();
        }
        if let Some(policy) = &self.policy {
            policy.reload().await;
        }
        let ended = broker.map(Broker::recheck).unwrap_or_default();
        if ended > 0 {
            say(format_args!("clients disconnected, since their rights have changed: {ended}"));
        }
    }
}

/// Listens, and gives the line to print when it is ready.
pub(crate) async fn start(
    listen: &Listen,
    policy: Option<PolicyFile>,
) -> Result<(Broker, Files, String), Failure> {
    let own = address("--listen", &listen.listen)?;
    let websocket = listen.websocket.as_deref().map(|text| address("--websocket", text));
    let websocket = websocket.transpose()?;
    let is_here = [Some(own), websocket].iter().flatten().all(|one| one.ip().is_loopback());
    if !is_here && policy.is_none() && !listen.allow_all {
        return Err(Failure::bad_input(
            "other machines could connect and do everything: give --policy FILE, or --allow-all if that is meant",
        ));
    }
    let mut options = Options::new(own).limits(limits(listen));
    if let Some(websocket) = websocket {
        options = options.websocket(websocket);
    }
    for origin in &listen.websocket_origin {
        options = options.websocket_origin(origin_of_pages(origin)?);
    }
    let mut attributes = None;
    if let (Some(cert), Some(key)) = (&listen.tls_cert, &listen.tls_key) {
        let authorities = listen.tls_client_ca.as_deref().map(read).transpose()?;
        if let (Some(name), Some(authorities)) = (listen.certificate_user, &authorities) {
            let users = certificate_users(listen, name.name(), authorities)?;
            let path = listen.certificate_attributes.clone();
            attributes = path.map(|path| AttributesFile { path, users: users.clone() });
            options = options.certificate_users(users);
        }
        let config = tls_config(&read(cert)?, &read(key)?, authorities.as_deref());
        options = options.tls(config.map_err(|error| {
            let (cert, key) = (cert.display(), key.display());
            Failure::bad_input(format_args!("--tls-cert {cert}, --tls-key {key}: {error}"))
        })?);
    }
    if let Some(policy) = &policy {
        options = options.policy(policy.shared().clone());
    }
    if listen.any_client_id {
        options = options.any_client_id();
    }
    let mut passwords = None;
    if let Some(path) = &listen.password_file {
        let known = users(path)?;
        if known.is_empty() {
            let path = path.display();
            say(format_args!(
                "{path}: there is no user in it, so nobody can log in; `statestore passwd` adds one, and SIGHUP has it read again"
            ));
        }
        let users = SharedUsers::from(known);
        options = options.users(users.clone());
        passwords = Some(PasswordFile { path: path.clone(), users });
    }
    let mut accounts = None;
    if let (Some(path), Some(issuer)) =
        (&listen.service_account_keys, &listen.service_account_issuer)
    {
        let known = ServiceAccounts::new(keys(path)?, issuer, &listen.service_account_audience);
        options = options.service_accounts(known.clone());
        accounts = Some(KeysFile { path: path.clone(), accounts: known });
    }
    let broker = Broker::bind(options)
        .await
        .map_err(|error| Failure::bad_input(format_args!("cannot serve: {error}")))?;
    let line = line(broker.local_addr(), broker.websocket_addr(), listen, policy.is_some());
    Ok((broker, Files { passwords, attributes, keys: accounts, policy }, line))
}

fn certificate_users(
    listen: &Listen,
    name: CertificateName,
    authorities: &[u8],
) -> Result<CertificateUsers, Failure> {
    let users = CertificateUsers::new(authorities, name)
        .map_err(|error| Failure::bad_input(format_args!("--tls-client-ca: {error}")))?;
    if let Some(path) = &listen.certificate_attributes {
        users.replace_attributes(attributes(path)?);
    }
    Ok(users)
}

fn attributes(path: &Path) -> Result<CertificateAttributes, Failure> {
    CertificateAttributes::parse(&text(path)?)
        .map_err(|error| Failure::bad_input(format_args!("{}: {error}", path.display())))
}

fn keys(path: &Path) -> Result<ServiceAccountKeys, Failure> {
    ServiceAccountKeys::parse(&text(path)?)
        .map_err(|error| Failure::bad_input(format_args!("{}: {error}", path.display())))
}

fn limits(listen: &Listen) -> Limits {
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut limits = Limits::default();
    limits.connections = number(listen.max_connections);
    limits.connections_per_address = number(listen.max_address_connections);
    limits.sessions = number(listen.max_sessions);
    limits.subscriptions = number(listen.max_subscriptions);
    limits.memory = bytes(listen.memory);
    limits.share = bytes(listen.client_memory);
    limits.retained = bytes(listen.retained_memory);
    limits.messages_per_second = listen.rate_limit;
    limits
}

fn line(
    address: SocketAddr,
    websocket: Option<SocketAddr>,
    listen: &Listen,
    has_policy: bool,
) -> String {
    let (scheme, web) = if listen.tls_cert.is_some() { ("mqtts", "wss") } else { ("mqtt", "ws") };
    let and = websocket.map(|address| format!(" and {web}://{address}")).unwrap_or_default();
    let is_here = address.ip().is_loopback()
        && websocket.is_none_or(|websocket| websocket.ip().is_loopback());
    let is_open = listen.password_file.is_none()
        && listen.tls_client_ca.is_none()
        && listen.service_account_keys.is_none();
    let who = match (is_here, is_open) {
        (true, true) => "only this machine can connect",
        (true, false) => "only this machine can connect, and only with what it takes to log in",
        (false, false) => "other machines can connect with what it takes to log in",
        (false, true) => "everybody who reaches this port can connect; see --password-file",
    };
    let what = if has_policy { "what the policy allows" } else { "everything" };
    format!(
        "statestore: ready on {scheme}://{address}{and}; {who}, and may do {what}; the broker knows who sends a request"
    )
}

pub(crate) fn address(option: &str, text: &str) -> Result<SocketAddr, Failure> {
    let bad = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("{option} {text}: {error}; write it like 127.0.0.1:1883"))
    };
    let mut found = text.to_socket_addrs().map_err(|error| bad(&error))?;
    found.next().ok_or_else(|| bad(&"no such host"))
}

/// What a browser sends has a scheme, a host and perhaps a port, and nothing else.
fn origin_of_pages(text: &str) -> Result<&str, Failure> {
    let host = text.split_once("://").map(|(_, host)| host);
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '*', ' ']);
    if text == "*" || text == "null" || host.is_some_and(is_host) {
        return Ok(text);
    }
    Err(Failure::bad_input(format_args!(
        "--websocket-origin {text}: write it like https://panel.example or http://localhost:8080, or * for all"
    )))
}

fn users(path: &Path) -> Result<Users, Failure> {
    let say = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("{}: {error}", path.display()))
    };
    let file = fs::read_to_string(path).map_err(|error| say(&error))?;
    file.parse().map_err(|error| say(&error))
}

/// Adds a user to a password file, or changes a password.
pub(crate) fn passwd(args: &Passwd) -> Result<ExitCode, Failure> {
    let path = &args.file;
    let say = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("{}: {error}", path.display()))
    };
    let password = new_password(&args.user)?;
    // Of two that change the file at once, the second begins with what the first has written.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder =
        File::open(folder.unwrap_or_else(|| Path::new("."))).map_err(|error| say(&error))?;
    flock(&folder, FlockOperation::LockExclusive).map_err(|error| say(&error))?;
    let old = match fs::symlink_metadata(path) {
        Ok(old) if old.is_file() => Some(old),
        Ok(_) => return Err(say(&"this is no file, or a link to one: name the file itself")),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(say(&error)),
    };
    let mut users = if old.is_some() { users(path)? } else { Users::default() };
    users.set(&args.user, &password).map_err(Failure::bad_input)?;
    replace(path, &users.to_string(), old.as_ref()).map_err(|error| say(&error))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a file, all of it or nothing: with the owner and the mode of the old one, or else for its owner only.
fn replace(path: &Path, text: &str, old: Option<&Metadata>) -> io::Result<()> {
    let mut name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{:08x}", fastrand::u32(..)));
    let new = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let dressed = old.map_or(Ok(()), |old| dress(&file, old));
    let written = dressed.and_then(|()| file.write_all(text.as_bytes()));
    let written = written.and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

/// Gives a new file the owner and the mode of an old one, so that whoever could read that can read this.
fn dress(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid())).map_err(|error| {
            let (user, group) = (old.uid(), old.gid());
            io::Error::other(format!(
                "it belongs to user {user} and group {group}: {error}; become that user"
            ))
        })?;
    }
    file.set_permissions(old.permissions())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Verb};

    fn listen(options: &str) -> Listen {
        let line = format!("statestore serve {options}");
        match Args::try_parse_from(line.split_whitespace()).unwrap().verb {
            Verb::Serve(serve) => serve.listen,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_line_says_who_can_connect() {
        for (options, address, begin, part) in [
            (
                "",
                [127, 0, 0, 1],
                "statestore: ready on mqtt://127.0.0.1:1883;",
                "only this machine",
            ),
            ("", [0, 0, 0, 0], "statestore: ready on mqtt://0.0.0.0:1883;", "everybody"),
            ("--password-file p", [0, 0, 0, 0], "statestore: ready on mqtt://", "other machines"),
            (
                "--tls-cert c --tls-key k",
                [127, 0, 0, 1],
                "statestore: ready on mqtts://",
                "only this",
            ),
        ] {
            let line = line((address, 1883).into(), None, &listen(options), false);
            assert!(line.starts_with(begin) && line.contains(part), "{line}");
            assert!(line.contains("may do everything"), "{line}");
        }
    }

    #[test]
    fn the_line_has_the_port_for_web_pages() {
        let here = ([127, 0, 0, 1], 1883).into();
        for (options, websocket, part, who) in [
            ("", [127, 0, 0, 1], "1883 and ws://127.0.0.1:9001;", "only this machine"),
            ("", [0, 0, 0, 0], "1883 and ws://0.0.0.0:9001;", "everybody"),
            ("--tls-cert c --tls-key k", [127, 0, 0, 1], "and wss://127.0.0.1:9001;", "only this"),
        ] {
            let line = line(here, Some((websocket, 9001).into()), &listen(options), true);
            assert!(line.contains(part) && line.contains(who), "{line}");
            assert!(line.contains("may do what the policy allows"), "{line}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        let address = |text| address("--listen", text);
        assert_eq!(address("127.0.0.1:0").unwrap(), ([127, 0, 0, 1], 0).into());
        assert!(address("[::1]:1883").unwrap().is_ipv6());
        for text in ["127.0.0.1", "1883", "127.0.0.1:x", "127.0.0.1:99999"] {
            assert!(matches!(address(text), Err(Failure::Refused(_))), "{text}");
        }
    }

    #[test]
    fn origins_are_as_browsers_send_them() {
        for origin in ["https://panel.example", "http://localhost:8080", "null", "*"] {
            assert_eq!(origin_of_pages(origin).unwrap(), origin);
        }
        for text in ["", "panel.example", "https://", "https://panel.example/", "https://*.example"]
        {
            assert!(matches!(origin_of_pages(text), Err(Failure::Refused(_))), "{text}");
        }
    }
}
