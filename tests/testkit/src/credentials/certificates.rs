//! Certificates made for one test by the command `openssl`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

const NEW: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

/// A certificate authority, a broker and a client, as PEM files. Dropping it removes the files.
#[derive(Debug)]
pub struct Certificates(PathBuf);

impl Certificates {
    /// Creates the files. Prints a note and returns `None` if openssl is not installed.
    ///
    /// # Panics
    /// If openssl fails.
    #[must_use]
    pub fn make(test: &str) -> Option<Self> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("statestore-tls-{}-{number}", process::id());
        let made = Self(env::temp_dir().join(name));
        fs::create_dir_all(&made.0).expect("a directory of our own");
        fs::write(made.0.join("names"), "subjectAltName=DNS:localhost\n").expect("a file");
        if !made.authority("ca") {
            println!("{test}: skipped, openssl is not installed");
            return None;
        }
        for name in ["broker", "client"] {
            let request = format!("req {NEW} -keyout {name}.key -out {name}.csr -subj /CN={name}");
            let gets = format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile names -out {name}.pem"
            );
            assert!(openssl(&made.0, &request) && openssl(&made.0, &gets), "a certificate");
        }
        Some(made)
    }

    /// Creates another self-signed certificate authority: `{name}.pem` and `{name}.key`.
    ///
    /// # Panics
    /// If openssl fails.
    pub fn make_authority(&self, name: &str) {
        assert!(self.authority(name), "an authority");
    }

    /// Creates `{name}.pem` and `{name}.key` for a client, with a subject such as `/CN=lamp` and
    /// alternative names such as `DNS:lamp`, signed by an authority.
    ///
    /// # Panics
    /// If openssl fails.
    pub fn make_client(&self, name: &str, subject: &str, names: &str, authority: &str) {
        // Without extensions the certificate would have version 1, which rustls rejects.
        let extensions = format!("subjectAltName={names}\n");
        self.make_signed(
            name,
            subject,
            if names.is_empty() { "keyUsage=digitalSignature\n" } else { &extensions },
            authority,
        );
    }

    /// Encrypts the key `{name}.key` as PKCS #8 in `{name}.encrypted.key`, with the options of
    /// `openssl pkcs8 -topk8` and the password in `{name}.password`, which ends with a line end.
    ///
    /// # Panics
    /// If openssl fails.
    pub fn encrypt_key(&self, name: &str, options: &str) {
        fs::write(self.0.join(format!("{name}.password")), "correct horse\n").expect("a file");
        let encrypts = format!(
            "pkcs8 -topk8 {options} -in {name}.key -out {name}.encrypted.key \
             -passout file:{name}.password"
        );
        assert!(openssl(&self.0, &encrypts), "an encrypted key");
    }

    /// Creates an intermediate certificate authority.
    ///
    /// # Panics
    /// If openssl fails.
    pub fn make_intermediate(&self, name: &str, subject: &str, authority: &str) {
        self.make_signed(name, subject, "basicConstraints=critical,CA:TRUE\n", authority);
    }

    /// Creates `{list}.crl`, a revocation list of an authority with these certificates, valid for
    /// two days or between the two times of `dates`, such as `20200101000000Z`.
    ///
    /// # Panics
    /// If openssl fails.
    pub fn make_revocation_list(
        &self,
        list: &str,
        authority: &str,
        revoked: &[&str],
        dates: Option<(&str, &str)>,
    ) {
        self.make_list(list, authority, revoked, dates, "");
    }

    /// Creates `{list}.crl`, an empty revocation list of an authority for one distribution point.
    ///
    /// # Panics
    /// If openssl fails.
    pub fn make_partial_revocation_list(&self, list: &str, authority: &str) {
        let point = "issuingDistributionPoint=critical,@point\n[point]\nfullname=URI:http://one\n";
        self.make_list(list, authority, &[], None, point);
    }

    fn make_list(
        &self,
        list: &str,
        authority: &str,
        revoked: &[&str],
        dates: Option<(&str, &str)>,
        extensions: &str,
    ) {
        let config = format!(
            "[ca]\ndefault_ca=here\n[here]\ndatabase=crl.index\ncrlnumber=crl.number\n\
             default_md=sha256\nunique_subject=no\ncrl_extensions=extensions\n\
             [extensions]\nauthorityKeyIdentifier=keyid:always\n{extensions}"
        );
        for (name, text) in [("crl.cnf", &*config), ("crl.index", ""), ("crl.number", "01\n")] {
            fs::write(self.0.join(name), text).expect("a file");
        }
        let by = format!("ca -config crl.cnf -cert {authority}.pem -keyfile {authority}.key");
        for name in revoked {
            assert!(openssl(&self.0, &format!("{by} -revoke {name}.pem")), "a revocation");
        }
        let dates = match dates {
            None => "-crldays 2".to_owned(),
            Some((from, to)) => format!("-crl_lastupdate {from} -crl_nextupdate {to}"),
        };
        let makes = format!("{by} -gencrl {dates} -out {list}.crl");
        assert!(openssl(&self.0, &makes), "a revocation list");
    }

    /// Creates `{name}.pem` and `{name}.key` for a broker with the name `localhost`.
    ///
    /// # Panics
    /// If openssl fails.
    pub fn make_broker(&self, name: &str, authority: &str) {
        self.make_signed(name, "/CN=broker", "subjectAltName=DNS:localhost\n", authority);
    }

    /// Creates `{name}.pem` and `{name}.key` of X.509 version 1: a certificate without extensions.
    ///
    /// # Panics
    /// If openssl fails.
    pub fn make_version_1(&self, name: &str, authority: &str) {
        let request = format!("req {NEW} -keyout {name}.key -out {name}.csr -subj /CN={name}");
        let gets = format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial \
             -days 2 -out {name}.pem"
        );
        assert!(openssl(&self.0, &request) && openssl(&self.0, &gets), "a certificate");
    }

    fn make_signed(&self, name: &str, subject: &str, extensions: &str, authority: &str) {
        fs::write(self.0.join("extensions"), extensions).expect("a file");
        let request = format!("req -utf8 {NEW} -keyout {name}.key -out {name}.csr -subj");
        let mut request: Vec<&str> = request.split_whitespace().collect();
        request.push(subject);
        let gets = format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 2 \
             -extfile extensions -out {name}.pem"
        );
        assert!(run(&self.0, &request) && openssl(&self.0, &gets), "a certificate");
    }

    fn authority(&self, name: &str) -> bool {
        let made =
            format!("req -x509 {NEW} -keyout {name}.key -out {name}.pem -subj /CN={name} -days 2");
        openssl(&self.0, &made)
    }

    /// Creates `{name}.pem` for the broker's key, valid between these times, such as
    /// `20200101000000Z`.
    ///
    /// # Panics
    /// If openssl fails.
    pub fn make_dated(&self, name: &str, from: &str, to: &str) {
        let config = "[ca]\ndefault_ca=here\n[here]\ndir=.\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\n\
                      default_md=sha256\nunique_subject=no\npolicy=any\n[any]\ncommonName=supplied\n";
        fs::write(self.0.join("ca.cnf"), config).expect("a file");
        fs::write(self.0.join("index"), "").expect("a file");
        let gets = format!(
            "ca -batch -notext -config ca.cnf -cert ca.pem -keyfile ca.key -in broker.csr -extfile names \
             -startdate {from} -enddate {to} -out {name}.pem"
        );
        assert!(openssl(&self.0, &gets), "a certificate");
    }

    /// The path of a file: `ca.pem`, or `.pem` and `.key` of `broker` and `client`.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The contents of a file.
    ///
    /// # Panics
    /// If the file does not exist.
    #[must_use]
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a PEM file")
    }

    /// Lines of a mosquitto configuration that require client certificates.
    #[must_use]
    pub fn broker_lines(&self) -> String {
        let file = |name| self.path(name).display().to_string();
        format!(
            // As root, mosquitto would otherwise change to a user that cannot read the key.
            "cafile {}\ncertfile {}\nkeyfile {}\nrequire_certificate true\nuser root\n",
            file("ca.pem"),
            file("broker.pem"),
            file("broker.key")
        )
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn openssl(directory: &Path, arguments: &str) -> bool {
    run(directory, &arguments.split_whitespace().collect::<Vec<_>>())
}

fn run(directory: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new("openssl");
    command.args(arguments).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
