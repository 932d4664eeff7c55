//! Certificates of `dev`: a certificate authority, the server and one client.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::dev::directory::{Directory, Validity, digest_of};
use crate::escape::path_on_one_line;
use crate::failure::Failure;

pub(super) const AUTHORITY: Pair = Pair { certificate: "broker-ca.crt", key: "broker-ca.key" };
pub(super) const SERVER: Pair = Pair { certificate: "server.crt", key: "server.key" };
pub(super) const CLIENT: Pair = Pair { certificate: "client.crt", key: "client.key" };

/// Names of the server that its certificate always contains.
const NAMES: [&str; 5] = ["localhost", "aio-broker", "host.docker.internal", "127.0.0.1", "::1"];

/// Validity of the certificates: the longest that common TLS libraries accept.
const VALIDITY: Duration = Duration::from_secs(825 * 24 * 60 * 60);

/// A certificate that expires sooner is renewed.
const RENEWAL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The certificates are valid from this time before now, for machines whose clocks are behind.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// Seconds that the clock may be behind the time at which a certificate was made.
const CLOCK_STEP_MAX: u64 = 60;

/// Files of a certificate and its private key.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) certificate: &'static str,
    pub(super) key: &'static str,
}

/// Usage of a certificate that is not a certificate authority.
#[derive(Clone, Copy)]
enum Role {
    Server,
    Client,
}

/// Returns all names of the server, each once.
pub(super) fn names(hosts: &[String]) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = NAMES.map(ToOwned::to_owned).to_vec();
    for host in hosts {
        CertificateParams::new([host.clone()]).map_err(|error| {
            Failure::bad_input(format_args!(
                "--host {host:?}: not a host name: {error}; use a name such as store.example, or an \
                 IP address"
            ))
        })?;
        if !names.contains(host) {
            names.push(host.clone());
        }
    }
    Ok(names)
}

/// Makes the certificates that are missing, expire soon or have other names. Returns whether one
/// was made.
pub(super) fn renew(
    directory: &mut Directory,
    names: &[String],
    now: Duration,
) -> Result<bool, Failure> {
    let authority = authority(directory, now)?;
    let mut is_renewed = authority.is_new;
    for (pair, role) in [(SERVER, Role::Server), (CLIENT, Role::Client)] {
        let names = match role {
            Role::Server => names,
            Role::Client => &[],
        };
        let existing = read_pair(directory, pair)?;
        let known = directory.validity(pair.certificate);
        check_clock(directory, pair, known, now)?;
        let is_valid = known.is_some_and(|known| {
            known.authority == authority.digest && known.names == names && !expires_soon(known, now)
        });
        if existing.is_none() || !is_valid {
            issue(directory, &authority, pair, role, names, now)?;
            is_renewed = true;
        }
    }
    Ok(is_renewed)
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    digest: String,
    is_new: bool,
}

/// Returns the certificate authority. Makes one if there is none or it expires soon.
fn authority(directory: &mut Directory, now: Duration) -> Result<Authority, Failure> {
    let known = directory.validity(AUTHORITY.certificate);
    check_clock(directory, AUTHORITY, known, now)?;
    if let Some((certificate, key)) = read_pair(directory, AUTHORITY)?
        && known.is_some_and(|known| !expires_soon(known, now))
    {
        let key = read_key(AUTHORITY.key, &key)?;
        let issuer = Issuer::new(authority_params(now)?, key);
        return Ok(Authority { issuer, digest: digest_of(&certificate), is_new: false });
    }
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let made = CertifiedIssuer::self_signed(authority_params(now)?, key);
    let made = made.map_err(|error| failed(&error))?;
    let (certificate, key) = (made.pem(), made.key().serialize_pem());
    write_pair(directory, AUTHORITY, &certificate, &key, Validity::default(), now)?;
    let key = read_key(AUTHORITY.key, &key)?;
    let issuer = Issuer::new(authority_params(now)?, key);
    Ok(Authority { issuer, digest: digest_of(&certificate), is_new: true })
}

fn authority_params(now: Duration) -> Result<CertificateParams, Failure> {
    let mut params = params(&[], now)?;
    params.distinguished_name.push(DnType::CommonName, "statestore dev CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn issue(
    directory: &mut Directory,
    authority: &Authority,
    pair: Pair,
    role: Role,
    names: &[String],
    now: Duration,
) -> Result<(), Failure> {
    let mut params = params(names, now)?;
    let (name, usage) = match role {
        Role::Server => ("statestore", ExtendedKeyUsagePurpose::ServerAuth),
        Role::Client => ("client", ExtendedKeyUsagePurpose::ClientAuth),
    };
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let certificate = params.signed_by(&key, &authority.issuer).map_err(|error| failed(&error))?;
    let validity = Validity {
        names: names.to_vec(),
        authority: authority.digest.clone(),
        ..Validity::default()
    };
    write_pair(directory, pair, &certificate.pem(), &key.serialize_pem(), validity, now)
}

/// Parameters for these alternative names, valid from now.
fn params(names: &[String], now: Duration) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new(names).map_err(|error| failed(&error))?;
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + now.saturating_add(VALIDITY);
    Ok(params)
}

fn expires_soon(validity: &Validity, now: Duration) -> bool {
    validity.expires <= now.saturating_add(RENEWAL).as_secs()
}

/// Refuses a certificate whose time of creation is in the future. The clock is wrong now, or was
/// wrong then.
fn check_clock(
    directory: &Directory,
    pair: Pair,
    known: Option<&Validity>,
    now: Duration,
) -> Result<(), Failure> {
    let behind = known.map_or(0, |known| known.made.saturating_sub(now.as_secs()));
    if behind <= CLOCK_STEP_MAX {
        return Ok(());
    }
    Err(Failure::bad_input(format_args!(
        "{}: it was made {} in the future, so the clock of this machine was or is wrong; set the \
         clock, and delete the directory if the clock is right now",
        path_on_one_line(&directory.path(pair.certificate)),
        humantime::format_duration(Duration::from_secs(behind)),
    )))
}

/// Reads a certificate and its key. `None` if neither exists, or if the first creation of both was
/// interrupted.
fn read_pair(directory: &Directory, pair: Pair) -> Result<Option<(String, String)>, Failure> {
    let (certificate, key) = (directory.read(pair.certificate)?, directory.read(pair.key)?);
    let (present, absent) = match (certificate, key) {
        (Some(certificate), Some(key)) => return Ok(Some((certificate, key))),
        (None, None) => return Ok(None),
        (None, Some(_)) if directory.validity(pair.certificate).is_none() => return Ok(None),
        (Some(_), None) => (pair.certificate, pair.key),
        (None, Some(_)) => (pair.key, pair.certificate),
    };
    Err(missing_half(directory, present, absent))
}

/// Returns the error for a file without the one that belongs to it.
pub(super) fn missing_half(directory: &Directory, present: &str, absent: &str) -> Failure {
    Failure::bad_input(format_args!(
        "{}: {absent} is missing, which belongs to it; restore {absent}, or delete both, and both \
         are made again",
        path_on_one_line(&directory.path(present)),
    ))
}

fn write_pair(
    directory: &mut Directory,
    pair: Pair,
    certificate: &str,
    key: &str,
    validity: Validity,
    now: Duration,
) -> Result<(), Failure> {
    let (made, expires) = (now.as_secs(), now.saturating_add(VALIDITY).as_secs());
    // Without a validity, the next start makes both again, for example after an interruption.
    directory.forget_validity(pair.certificate);
    directory.write(pair.key, key)?;
    directory.write(pair.certificate, certificate)?;
    directory.set_validity(pair.certificate, Validity { made, expires, ..validity })
}

/// Parses a private key of the directory. The error of the parser may quote it, so it is dropped.
pub(super) fn read_key(name: &str, pem: &str) -> Result<KeyPair, Failure> {
    KeyPair::from_pem(pem).map_err(|_| {
        Failure::bad_input(format_args!(
            "--dir: {name} is not the private key that `statestore dev` made; delete the directory \
             to start again"
        ))
    })
}

fn failed(error: &rcgen::Error) -> Failure {
    Failure::bad_input(format_args!("cannot make a certificate: {error}"))
}
