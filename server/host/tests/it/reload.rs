//! Password file and policy that are replaced while the broker runs.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use statestore_server::{
    FileKind, LoadErrorKind, PolicyFile, PolicyWarning, Principals, ReadError, Reload, Reloader,
    Report, Summary, UsersError, UsersFile,
};
use statestore_testkit::process::timely;

use super::*;

/// A directory of one test.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("statestore-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("create directory");
        Self(path)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("create directory");
        fs::write(&path, contents).expect("write file");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A password file with these users. Their hashes are cheap and match no password.
fn password_file(names: &[&str]) -> String {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo";
    names.iter().map(|name| format!("{name}:{hash}\n")).collect()
}

fn policy(client_id: &str) -> String {
    format!(
        "rules: [{{principals: {{clientIds: [{client_id}]}}, \
         brokerResources: [{{method: Connect}}]}}]"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_reports_each_setting_and_rechecks_clients() {
    timely(async {
        let directory = Directory::new("reload");
        let path = directory.write("policy", policy("lamp"));
        let file = PolicyFile::load(&path, Principals::default()).expect("a policy");
        let options = options().policy(file.policy().clone());
        let users_path = directory.write("users", "");
        let users = UsersFile::load(&users_path).expect("an empty file is valid at the start");
        let mut reloader = Reloader::default();
        assert!(reloader.is_empty());
        reloader.add(users);
        reloader.add(file);
        let (broker, _service) = start(options).await;
        let _lamp = open(&broker, "lamp", Hello::default());

        let loaded = reloader.last_reloads();
        assert_eq!(loaded[0].kind, FileKind::Users);
        assert_eq!((loaded[1].kind, &loaded[1].paths[..]), (FileKind::Policy, &[path.clone()][..]));
        tokio::time::sleep(Duration::from_millis(10)).await;
        directory.write("policy", policy("fan"));
        let reloaded = reloader.reload_all(Some(&broker)).await;
        let [empty, new] = &reloaded.reports[..] else { panic!("two reports: {reloaded:?}") };
        let error = empty.result.as_ref().expect_err("no users");
        assert!(matches!(error.kind(), LoadErrorKind::NoUsers), "{error}");
        let users_path = users_path.display();
        let expected = format!("{users_path}: the file contains no user; nothing has changed");
        assert_eq!(empty.to_string(), expected);
        assert_eq!(new.to_string(), format!("{}: read again: 1 rule", path.display()));
        assert_eq!(reloaded.disconnected, 1, "the lamp");
        let last = reloader.last_reloads();
        assert!(last[0] == loaded[0] && last[1].at > loaded[1].at, "{last:?}");
    })
    .await;
}

#[tokio::test]
async fn invalid_users_and_policies_change_nothing() {
    let directory = Directory::new("invalid");
    let path = directory.write("users", password_file(&["ann"]));
    let file = UsersFile::load(&path).expect("a password file");
    let users = |file: &UsersFile| format!("{:?}", file.users());
    let before = users(&file);
    let mut large = "#".repeat(16 << 20);
    large.push('\n');
    for contents in [&b"ann:"[..], b"ann:\xff", b"", large.as_bytes()] {
        directory.write("users", contents);
        file.reload().expect_err("invalid");
        assert_eq!(users(&file), before);
    }
    let error = file.reload().expect_err("too large");
    assert!(matches!(error.kind(), LoadErrorKind::Read(ReadError::TooLarge(16_777_216))));
    directory.write("users", "ann:x");
    let error = file.reload().expect_err("not a hash");
    assert!(matches!(error.kind(), LoadErrorKind::Users(UsersError::Line(1))), "{error}");
    directory.write("users", password_file(&["ann", "bob"]));
    assert_eq!(file.reload().expect("valid"), Summary::Users { users: 2 });
    assert_ne!(users(&file), before);

    let path = directory.write("policy", "rules: [");
    let error = PolicyFile::load(&path, Principals::default()).expect_err("invalid");
    assert!(matches!(error.kind(), LoadErrorKind::Policy(_)), "{error}");
    let by_user = "rules: [{principals: {usernames: [ann], attributes: [{site: x}]}, \
                   brokerResources: [{method: Connect}]}]";
    directory.write("policy", by_user);
    let file = PolicyFile::load(&path, Principals::default()).expect("a policy");
    let unused = [PolicyWarning::UserNamesUnused, PolicyWarning::AttributesUnused];
    assert!(unused.iter().all(|warning| file.warnings().contains(warning)), "{file:?}");
    let all = Principals { user_names: true, attributes: true };
    let file = PolicyFile::load(&path, all).expect("a policy");
    assert!(unused.iter().all(|warning| !file.warnings().contains(warning)), "{file:?}");
}

/// As in a volume of Kubernetes: each file is a symbolic link through the link `..data` to a
/// directory with one version, and only that link is replaced.
#[cfg(unix)]
#[tokio::test]
async fn watch_reloads_changed_files_behind_symbolic_links() {
    use std::os::unix::fs::symlink;

    timely(async {
        let directory = Directory::new("watch");
        let data = directory.0.join("..data");
        let point_to = |version: &str| {
            let new = directory.0.join("..new");
            symlink(version, &new).expect("a link");
            fs::rename(new, &data).expect("rename link");
        };
        directory.write("v1/users", password_file(&["ann"]));
        point_to("v1");
        let path = directory.0.join("users");
        symlink("..data/users", &path).expect("a link");
        let file = UsersFile::load(&path).expect("a password file");
        let mut reloader = Reloader::default();
        reloader.add(file);
        let (reports, mut received) = tokio::sync::mpsc::unbounded_channel::<Report>();
        let interval = Duration::from_millis(20);
        let watch = reloader.watch(interval, None, |reloaded| {
            reloaded.reports.into_iter().for_each(|report| reports.send(report).expect("open"));
        });
        let change = async {
            tokio::time::sleep(5 * interval).await;
            assert!(received.try_recv().is_err(), "nothing has changed");
            directory.write("v2/users", password_file(&["ann", "bob"]));
            point_to("v2");
            let report = received.recv().await.expect("a report");
            assert_eq!(report.result.expect("valid"), Summary::Users { users: 2 });
            // An invalid file is reported once.
            directory.write("v3/users", "ann:x");
            point_to("v3");
            assert!(received.recv().await.expect("a report").result.is_err());
            tokio::time::sleep(5 * interval).await;
            assert!(received.try_recv().is_err(), "still the same file");
            point_to("v1");
            let report = received.recv().await.expect("a report");
            assert_eq!(report.result.expect("valid"), Summary::Users { users: 1 });
            // Written in place, in one step: if this test were suspended after it has emptied the
            // file, the watch would find the empty file stable.
            let file = fs::File::options().write(true).open(directory.0.join("v1/users"));
            let longer = password_file(&["ann", "bob", "carol"]);
            file.and_then(|mut file| file.write_all(longer.as_bytes())).expect("write file");
            let report = received.recv().await.expect("a report");
            assert_eq!(report.result.expect("valid"), Summary::Users { users: 3 });
        };
        tokio::select! {
            () = watch => unreachable!("the watch never ends"),
            () = change => {}
        }
    })
    .await;
}
