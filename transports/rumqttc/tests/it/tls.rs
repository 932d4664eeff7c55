//! The same over TLS, with certificates made for the test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, process};

use statestore_rumqttc::{Options, connect, serve, tls_config};
use statestore_tokio::StateStore;

use crate::timely;
use statestore_tests::mosquitto::Mosquitto;

/// An authority, a broker and a client, as PEM files; gone with the test.
struct Certificates(PathBuf);

impl Certificates {
    /// `None`, and a line that says so, where there is no openssl.
    fn make(test: &str) -> Option<Self> {
        let made = Self(env::temp_dir().join(format!("statestore-rumqttc-tls-{}", process::id())));
        fs::create_dir_all(&made.0).expect("a directory of our own");
        fs::write(made.0.join("names"), "subjectAltName=DNS:localhost\n").expect("a file");
        let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        let authority = format!("req -x509 {new} -keyout ca.key -out ca.pem -subj /CN=ca -days 2");
        if !openssl(&made.0, &authority) {
            println!("{test}: skipped, there is no openssl here");
            return None;
        }
        for name in ["broker", "client"] {
            let asks = format!("req {new} -keyout {name}.key -out {name}.csr -subj /CN={name}");
            let gets = format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile names -out {name}.pem"
            );
            assert!(openssl(&made.0, &asks) && openssl(&made.0, &gets), "a certificate");
        }
        Some(made)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).expect("a PEM file")
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn openssl(directory: &Path, arguments: &str) -> bool {
    let mut command = Command::new("openssl");
    command.args(arguments.split_whitespace()).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[tokio::test]
async fn both_sides_prove_who_they_are() {
    let Some(made) = Certificates::make("both_sides_prove_who_they_are") else { return };
    let file = |name| made.0.join(name).display().to_string();
    let lines = format!(
        // Run by root, mosquitto would become a user that may not read the key.
        "cafile {}\ncertfile {}\nkeyfile {}\nrequire_certificate true\nuser root\n",
        file("ca.pem"),
        file("broker.pem"),
        file("broker.key")
    );
    let test = "both_sides_prove_who_they_are";
    let Some(broker) = Mosquitto::start_with(test, &lines) else { return };
    timely(async {
        let (chain, key, authority) =
            (made.read("client.pem"), made.read("client.key"), made.read("ca.pem"));
        let known = tls_config(&authority, Some((&chain, &key))).expect("good files");
        let options = |id: &str| Options::new(id, "localhost", broker.port());
        let _service = serve(options("statestore").tls(known.clone()));
        let store = connect(options("c1").tls(known)).expect("a client id");
        while store.set("k", "v").await.is_err() {}
        assert!(store.get("k").await.expect("an answer").is_some());

        for config in [
            tls_config(&authority, None),
            tls_config(&made.read("broker.pem"), Some((&chain, &key))),
        ] {
            let stranger = options("c2").tls(config.expect("good files"));
            let store: StateStore = connect(stranger).expect("a client id");
            let short = std::time::Duration::from_millis(500);
            assert!(store.get("k").timeout(short).await.is_err());
        }
    })
    .await;
}
