use super::*;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn users(passwords: &[(&str, &str)]) -> Users {
    let mut users = Users::default();
    passwords.iter().for_each(|(name, password)| users.set(name, password).unwrap());
    users
}

async fn check(logins: &Logins, name: &str, password: &str) -> Result<(), Reason> {
    let password = Some(password.as_bytes().to_vec());
    logins.check(Login { address: HERE, name: Some(name), password }, || false).await
}

const REFUSED: Result<(), Reason> = Err(Reason::BAD_USER_NAME_OR_PASSWORD);
const PAUSED: Result<(), Reason> = Err(Reason::CONNECTION_RATE_EXCEEDED);

#[tokio::test(start_paused = true)]
async fn wrong_passwords_throttle_but_cached_login_succeeds() {
    let shared = SharedUsers::from(users(&[("alice", "one"), ("bob", "two")]));
    let logins = Logins::new(shared.clone());
    assert_eq!(check(&logins, "alice", "one").await, Ok(()));
    for _ in 0..5 {
        assert_eq!(check(&logins, "alice", "two").await, REFUSED);
    }
    assert_eq!(check(&logins, "alice", "two").await, PAUSED);
    assert_eq!(check(&logins, "alice", "one").await, Ok(()), "cached from the first login");
    assert_eq!(check(&logins, "bob", "two").await, Ok(()));
    // A password that was set again has another hash, so it is not cached even if it is the same.
    shared.replace(users(&[("alice", "one")]));
    assert_eq!(check(&logins, "alice", "one").await, PAUSED);
    assert_eq!(check(&logins, "bob", "two").await, REFUSED);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(check(&logins, "alice", "one").await, Ok(()));
}

/// A reload of the password file keeps the cached logins of unchanged users.
#[tokio::test(start_paused = true)]
async fn cached_login_survives_reload_if_hash_is_unchanged() {
    let first = users(&[("alice", "one"), ("bob", "two"), ("carol", "three")]);
    let shared = SharedUsers::from(first.clone());
    let logins = Logins::new(shared.clone());
    for (name, password) in [("alice", "one"), ("bob", "two"), ("carol", "three")] {
        assert_eq!(check(&logins, name, password).await, Ok(()));
        for _ in 0..5 {
            assert_eq!(check(&logins, name, "wrong").await, REFUSED);
        }
        assert_eq!(check(&logins, name, "wrong").await, PAUSED);
    }
    // As if reloaded from a file: alice has the same hash, bob another password, carol no line.
    let lines = first.to_string();
    let alice = lines.lines().find(|line| line.starts_with("alice:")).unwrap();
    let mut next: Users = alice.parse().unwrap();
    next.set("bob", "four").unwrap();
    shared.replace(next);
    assert_eq!(check(&logins, "alice", "one").await, Ok(()), "cached from the first login");
    assert_eq!(check(&logins, "alice", "wrong").await, PAUSED);
    for (name, password) in [("bob", "two"), ("bob", "four"), ("carol", "three")] {
        assert_eq!(check(&logins, name, password).await, PAUSED, "{name} {password}");
    }
    // A user that was removed is not cached after the old file is restored.
    shared.replace(first);
    assert_eq!(check(&logins, "carol", "three").await, PAUSED);
    assert_eq!(check(&logins, "alice", "one").await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn cached_login_expires_after_an_hour() {
    let logins = Logins::new(users(&[("alice", "one")]).into());
    assert_eq!(check(&logins, "alice", "one").await, Ok(()));
    let contains = |password: &str| {
        let current = logins.users.current();
        lock(&logins.verified).contains(&current, "alice", password.as_bytes())
    };
    assert!(contains("one") && !contains("two") && !contains(""));
    tokio::time::advance(VERIFIED_FOR).await;
    assert!(!contains("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_checks_share_two_workspaces() {
    let logins = Arc::new(Logins::new(users(&[("alice", "one")]).into()));
    let ask = |number: usize| {
        let logins = Arc::clone(&logins);
        tokio::spawn(async move { check(&logins, &format!("name {number}"), "x").await })
    };
    let asked: Vec<_> = (0..waiting::WAITING_MAX + 20).map(ask).collect();
    let mut refused = 0;
    for asked in asked {
        let answer = asked.await.unwrap();
        assert!(answer.is_err());
        refused += usize::from(answer == REFUSED);
    }
    assert!(refused >= 20, "{refused}");
    assert!((1..=CHECKS_MAX).contains(&lock(&logins.workspaces).len()));
}
