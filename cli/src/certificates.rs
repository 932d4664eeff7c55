//! Certificates for a test setup: a CA, a server and a client.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::args::Certificates;
use crate::escape::path_on_one_line;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// Validity of the certificates: the longest that common TLS libraries accept.
const VALIDITY: Duration = Duration::from_secs(825 * 24 * 60 * 60);

/// The certificates are valid from this time before now, for machines whose clocks are behind.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// Names of the server that every certificate contains.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Mode of a file that every user may read.
const PUBLIC: u32 = 0o644;

/// Mode of a private key.
const SECRET: u32 = 0o600;

/// Contents of a file, and its mode.
struct NewFile {
    path: PathBuf,
    mode: u32,
    text: String,
}

/// Usage of a certificate that is not a CA.
enum Role<'a> {
    Server(&'a [String]),
    Client(&'a str),
}

pub(crate) fn run(args: &Certificates) -> Result<ExitCode, Failure> {
    check_client_name(&args.client)?;
    let hosts = hosts(&args.host);
    let files = make(&args.dir, &args.client, &hosts)?;
    write_all(&args.dir, &files)?;
    output::raw(summary(&args.dir, &args.client, &hosts).as_bytes())?;
    Ok(Exit::Success.into())
}

/// The client's name is the name of its files.
fn check_client_name(name: &str) -> Result<(), Failure> {
    let is_valid = |char: char| char.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&char);
    if name.is_empty() || name.starts_with(['-', '.']) || !name.chars().all(is_valid) {
        return Err(Failure::bad_input(format_args!(
            "--client {name:?}: use letters, digits, '-', '_' and '.' only"
        )));
    }
    if ["ca", "server"].contains(&name) {
        return Err(Failure::bad_input(format_args!(
            "--client {name}: the files of the {name} have this name; use another one"
        )));
    }
    Ok(())
}

/// All names of the server, each once.
fn hosts(extra: &[String]) -> Vec<String> {
    let uname = rustix::system::uname();
    let machine = uname.nodename().to_str().unwrap_or_default().to_owned();
    let mut hosts: Vec<String> = LOCAL.map(ToOwned::to_owned).to_vec();
    for host in [machine].iter().chain(extra) {
        if !host.is_empty() && !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    hosts
}

fn make(dir: &Path, client: &str, hosts: &[String]) -> Result<Vec<NewFile>, Failure> {
    let mut params = params(&[])?;
    params.distinguished_name.push(DnType::CommonName, "statestore test CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?);
    let ca = ca.map_err(failed)?;
    let mut files = pair(dir, "ca", ca.pem(), ca.key().serialize_pem());
    for (name, role) in [("server", Role::Server(hosts)), (client, Role::Client(client))] {
        let (certificate, key) = issue(&role, &ca)?;
        files.extend(pair(dir, name, certificate, key));
    }
    Ok(files)
}

fn issue(role: &Role<'_>, ca: &CertifiedIssuer<'_, KeyPair>) -> Result<(String, String), Failure> {
    let (mut params, name, usage) = match role {
        Role::Server(hosts) => (params(hosts)?, "statestore", ExtendedKeyUsagePurpose::ServerAuth),
        Role::Client(name) => {
            (params(&[(*name).to_owned()])?, *name, ExtendedKeyUsagePurpose::ClientAuth)
        }
    };
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, ca).map_err(failed)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Parameters for these alternative names, valid from now.
fn params(names: &[String]) -> Result<CertificateParams, Failure> {
    for name in names {
        CertificateParams::new([name.clone()]).map_err(|error| {
            Failure::bad_input(format_args!("--host {name:?}: not a host name: {error}"))
        })?;
    }
    let mut params = CertificateParams::new(names).map_err(failed)?;
    #[expect(clippy::disallowed_methods, reason = "the validity of a certificate is a date")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + now.saturating_add(VALIDITY);
    Ok(params)
}

fn pair(dir: &Path, name: &str, certificate: String, key: String) -> Vec<NewFile> {
    let path = |extension| dir.join(format!("{name}.{extension}"));
    vec![
        NewFile { path: path("pem"), mode: PUBLIC, text: certificate },
        NewFile { path: path("key"), mode: SECRET, text: key },
    ]
}

fn failed(error: rcgen::Error) -> Failure {
    Failure::bad_input(format_args!("cannot create the certificates: {error}"))
}

/// Writes all files, or none.
fn write_all(dir: &Path, files: &[NewFile]) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|error| Failure::path(dir.display(), &error))?;
    for (index, NewFile { path, mode, text }) in files.iter().enumerate() {
        let options = fs::File::options().write(true).create_new(true).mode(*mode).open(path);
        let written = options.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        if let Err(error) = written {
            let is_present = error.kind() == ErrorKind::AlreadyExists;
            let created = if is_present { index } else { index + 1 };
            for NewFile { path, .. } in files.iter().take(created) {
                let _ = fs::remove_file(path);
            }
            return Err(if is_present {
                Failure::bad_input(format_args!(
                    "{} exists and is not overwritten; use another directory, or delete the \
                     certificates there",
                    path.display()
                ))
            } else {
                Failure::path(path.display(), &error)
            });
        }
    }
    Ok(())
}

fn summary(dir: &Path, client: &str, hosts: &[String]) -> String {
    let file = |name: &str| quoted(&dir.join(name));
    let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let (own, own_key) = (file(&format!("{client}.pem")), file(&format!("{client}.key")));
    format!(
        "Created in {}:\n  \
           ca.pem, ca.key: certificate authority\n  \
           server.pem, server.key: server {}\n  \
           {client}.pem, {client}.key: client {client}\n\n\
         Start a server:\n  \
           statestore serve --listen-tls 127.0.0.1:8883 --listen-tls-cert {cert} \
           --listen-tls-key {key} --listen-tls-client-ca {ca}\n\n\
         Connect:\n  \
           statestore doctor --broker mqtts://localhost:8883 --tls-ca {ca} --tls-cert {own} \
           --tls-key {own_key}\n",
        path_on_one_line(dir),
        hosts.join(", "),
    )
}

/// A path as a word of a shell command.
fn quoted(path: &Path) -> String {
    let text = path_on_one_line(path);
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-+:@".contains(char);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_name_is_a_safe_file_name() {
        for name in ["client", "lamp-1", "a.b_c"] {
            assert!(check_client_name(name).is_ok(), "{name}");
        }
        for name in ["", "ca", "server", "../x", "a/b", ".hidden", "-x", "a b"] {
            assert!(check_client_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted(Path::new("/tmp/a-b")), "/tmp/a-b");
        assert_eq!(quoted(Path::new("/tmp/a b's")), "'/tmp/a b'\\''s'");
    }

    #[test]
    fn server_has_each_name_once() {
        let extra = ["localhost", "broker.example", "10.0.0.1", "10.0.0.1"].map(ToOwned::to_owned);
        let hosts = hosts(&extra);
        for name in LOCAL.into_iter().chain(["broker.example", "10.0.0.1"]) {
            assert_eq!(hosts.iter().filter(|host| *host == name).count(), 1, "{name}: {hosts:?}");
        }
    }
}
