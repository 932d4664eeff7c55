use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::collection::btree_set;
use proptest::prelude::*;
use statestore_server::{Options, ServiceAccountKeys, ServiceAccounts, serve};
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::{Hello, Raw};

use super::*;

/// A cheap hash of the password `secret`.
const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$+RsCrdHrAKGEJIDLM0Esow";

const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "use": "sig",
    "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
    "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}"#;

/// Files of one test case, removed with it.
struct Files {
    policy: PathBuf,
    users: PathBuf,
}

impl Files {
    fn new(policy: &str, users: &BTreeSet<String>) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = |name: &str| {
            let name = format!("statestore-explain-{}-{number}-{name}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let files = Self { policy: path("policy"), users: path("users") };
        let lines: String = users.iter().map(|name| format!("{name}:{HASH}\n")).collect();
        fs::write(&files.policy, policy).unwrap();
        fs::write(&files.users, lines).unwrap();
        files
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.policy);
        let _ = fs::remove_file(&self.users);
    }
}

/// Returns a policy that lets some users connect, and that may name a client id for them.
fn policy_text(allowed: &BTreeSet<String>, named: Option<&str>) -> String {
    let quoted: Vec<String> = allowed.iter().map(|name| format!("\"{name}\"")).collect();
    let ids = named.map(|id| format!(", clientIds: [\"{id}\"]")).unwrap_or_default();
    let resources = if named.is_some() {
        format!("[{{method: Connect{ids}}}, {{method: Connect, clientIds: [\"a\"]}}]")
    } else {
        "[{method: Connect}]".to_owned()
    };
    let names = quoted.join(", ");
    format!("rules: [{{principals: {{usernames: [{names}]}}, brokerResources: {resources}}}]")
}

fn explained(files: &Files, user: &str, client_id: &str, service_accounts: bool) -> Option<Reason> {
    let args = Explain {
        file: files.policy.clone(),
        verb: Verb::Connect,
        object: None,
        client_id: client_id.to_owned(),
        user: Some(user.to_owned()),
        attribute: Vec::new(),
        password_file: Some(files.users.clone()),
        service_accounts,
    };
    let policy = policy(&args.file).unwrap();
    let principal = Principal { client_id, user_name: Some(user), attributes: &[] };
    connect_rejection(&args, &policy, &principal).unwrap().map(|rejection| match rejection {
        ConnectRejection::NotAllowed => Reason::NOT_AUTHORIZED,
        ConnectRejection::InvalidClientId | ConnectRejection::ForeignClientId => {
            Reason::CLIENT_IDENTIFIER_NOT_VALID
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Small alphabets, so that names and client ids are often prefixes of each other and often
    /// look like service accounts.
    #[test]
    fn explain_and_broker_agree_about_connect(
        users in btree_set("[ab]([-.][ab]){0,2}", 1..5),
        denied in btree_set("[ab]([-.][ab]){0,2}", 0..3),
        client_ids in btree_set("[ab]([-._/][ab]?){0,3}", 1..4),
        named in proptest::option::of("[ab]([-._][ab]){0,2}"),
        service_accounts: bool,
    ) {
        let allowed: BTreeSet<String> = users.difference(&denied).cloned().collect();
        prop_assume!(!allowed.is_empty());
        let files = Files::new(&policy_text(&allowed, named.as_deref()), &users);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut options = Options::new((Ipv4Addr::LOCALHOST, 0))
            .users(UsersFile::load(&files.users).unwrap().users().clone())
            .policy(policy(&files.policy).unwrap());
        if service_accounts {
            let keys = ServiceAccountKeys::parse(KEYS).unwrap();
            options = options.service_accounts(ServiceAccounts::new(keys, "issuer", ["audience"]));
        }
        let cases: Vec<(String, String)> = users
            .iter()
            .flat_map(|user| client_ids.iter().map(|client_id| (user.clone(), client_id.clone())))
            .collect();
        let connects = cases.clone();
        let served = runtime.block_on(async {
            let (broker, _service) = serve(options).await.unwrap();
            let port = broker.local_addr().port();
            // The client blocks, so it needs another thread than the broker.
            let connect = move |(user, client_id): &(String, String)| {
                let hello = Hello { login: Some((user, "secret")), ..Hello::default() };
                loop {
                    // Waits for the end, since another user cannot have the client id meanwhile.
                    let connected = Raw::try_open(port, client_id, hello).map(Raw::disconnect);
                    let reason = connected.err().map(|reason| reason.expect("a reason"));
                    // The store has not received yet that another user's client has disconnected.
                    if reason != Some(Reason::SERVER_BUSY) {
                        return reason;
                    }
                }
            };
            let all = move || connects.iter().map(connect).collect::<Vec<_>>();
            tokio::task::spawn_blocking(all).await.unwrap()
        });
        for ((user, client_id), served) in cases.iter().zip(served) {
            let expected = explained(&files, user, client_id, service_accounts);
            prop_assert_eq!(served, expected, "{} as {}", user, client_id);
        }
    }
}
