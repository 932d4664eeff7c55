//! The rule that binds client ids to users.

use std::borrow::Cow;

use statestore_policy::{Action, Rights};

/// Prefix of the user names of service accounts.
pub(crate) const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The client ids of one user: the user name, and the user name with a hyphen and any suffix.
///
/// A service account `system:serviceaccount:NAMESPACE:NAME` has `NAMESPACE.NAME`, because client
/// ids of the state store contain no colons, and that with an underscore and any suffix. Account
/// names contain hyphens, so one name plus a hyphen is often a prefix of another name, and the
/// broker has no list of all accounts.
///
/// ```
/// use statestore_server::ClientIds;
///
/// let ann = ClientIds::new("ann");
/// assert!(ann.contains("ann-1", ["ann", "bob"], false));
/// // If several user names match, the client id belongs to the longest one.
/// assert!(!ann.contains("ann-marie-1", ["ann", "ann-marie"], false));
///
/// let lamp = ClientIds::new("system:serviceaccount:home:lamp");
/// assert!(lamp.contains("home.lamp_1", [], true));
/// ```
#[derive(Clone, Debug)]
pub struct ClientIds<'a> {
    user: &'a str,
    name: Cow<'a, str>,
    separator: char,
}

impl<'a> ClientIds<'a> {
    /// Describes the client ids of this user.
    #[must_use]
    pub fn new(user: &'a str) -> Self {
        match user.strip_prefix(ACCOUNT_PREFIX) {
            None => Self { user, name: user.into(), separator: '-' },
            Some(account) => {
                // A namespace contains no dot, so the result is unambiguous.
                Self { user, name: account.replacen(':', ".", 1).into(), separator: '_' }
            }
        }
    }

    /// Returns the client id without a suffix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the prefix of all other client ids.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("{}{}", self.name, self.separator)
    }

    /// Returns whether a client id belongs to the user, for a broker with these users in its
    /// password file, with or without service accounts.
    ///
    /// If several user names match, the client id belongs to the longest one. A user in the
    /// password file takes precedence over a service account with the same client id. If service
    /// accounts may log in, a client id that may be that of an account belongs to no other user,
    /// except to the user with exactly that name.
    #[must_use]
    pub fn contains<'n, U: IntoIterator<Item = &'n str>>(
        &self,
        client_id: &str,
        users: U,
        has_service_accounts: bool,
    ) -> bool {
        let is_account = self.separator == '_';
        let is_owner = match !is_account && has_service_accounts && is_account_id(client_id) {
            true => *self.name == *client_id,
            false => matches(client_id, &self.name, self.separator),
        };
        let belongs_to_other = |name: &str| {
            name.len() >= self.name.len() && name != self.user && matches(client_id, name, '-')
        };
        is_owner && !users.into_iter().any(belongs_to_other)
    }
}

/// Returns whether a client id is this name, or begins with it and the separator.
fn matches(client_id: &str, name: &str, separator: char) -> bool {
    let rest = client_id.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(separator))
}

/// Returns whether a client id may be that of a service account.
fn is_account_id(client_id: &str) -> bool {
    let name = client_id.split('_').next().unwrap_or_default();
    let is_named = |part: &str| {
        let may_be =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !part.is_empty() && part.bytes().all(may_be)
    };
    name.split_once('.').is_some_and(|(namespace, name)| is_named(namespace) && is_named(name))
}

/// Reason why a client may not connect with its client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectRejection {
    /// The client id contains `/`. Topics contain client ids, so such a client would share topics
    /// with another one.
    InvalidClientId,
    /// The policy does not allow the client to connect.
    NotAllowed,
    /// The client id does not belong to the user, and the policy does not name it for Connect.
    ForeignClientId,
}

/// Decides whether a client that has proved its identity may connect. The broker and the command
/// `statestore policy explain` call this function, so that both give the same answer.
///
/// An empty client id is one that the broker will assign.
///
/// `rights` are those by the policy, if there is one. `has_client_id` returns whether the client
/// may have its client id without the policy: because it belongs to its user, because the broker
/// has assigned it, or because users may have [any client id](crate::Options::any_client_id).
///
/// # Errors
/// [`ConnectRejection`] if the client may not connect.
pub fn check_connect(
    client_id: &str,
    rights: Option<&Rights>,
    has_client_id: impl FnOnce() -> bool,
) -> Result<(), ConnectRejection> {
    match rights {
        _ if !is_one_level(client_id) => Err(ConnectRejection::InvalidClientId),
        Some(rights) if !rights.allow(&Action::Connect) => Err(ConnectRejection::NotAllowed),
        Some(rights) if rights.names_client_id() => Ok(()),
        _ if has_client_id() => Ok(()),
        _ => Err(ConnectRejection::ForeignClientId),
    }
}

/// Returns whether a client id is one level of a topic.
pub(crate) fn is_one_level(client_id: &str) -> bool {
    !client_id.contains('/')
}

/// Returns whether this is a valid user name. Client ids begin with it, and a client id is a level
/// of topics.
#[cfg(any(feature = "passwords", feature = "tls"))]
pub(crate) fn is_name(name: &str) -> bool {
    let is_bad = |letter: char| matches!(letter, ':' | '/' | '+' | '#') || letter.is_control();
    !name.is_empty() && name.trim() == name && !name.contains(is_bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_id_belongs_to_longest_matching_user() {
        for (client_id, user, expected) in [
            ("ann", "ann", true),
            ("ann-1", "ann", true),
            ("ann-", "ann", true),
            ("anna", "ann", false),
            ("bob", "ann", false),
            ("an", "ann", false),
            ("ann-marie", "ann", false),
            ("ann-marie-1", "ann", false),
            ("ann-mari", "ann", true),
            ("ann-maries", "ann", true),
            ("ann-marie-1", "ann-marie", true),
            ("ann", "ann-marie", false),
        ] {
            let found = ClientIds::new(user).contains(client_id, ["ann", "ann-marie"], false);
            assert_eq!(found, expected, "{client_id} {user}");
        }
    }

    #[test]
    fn possible_service_account_client_id_belongs_to_no_user() {
        let results = |user: &str, client_id| {
            [false, true].map(|has| ClientIds::new(user).contains(client_id, [], has))
        };
        for (user, client_id, expected) in [
            ("kube", "kube-system.ctl", [true, false]),
            ("kube", "kube-system.ctl_1", [true, false]),
            ("kube", "kube-1", [true, true]),
            ("kube", "kube-1.", [true, true]),
            ("kube", "kube-System.ctl", [true, true]),
            ("kube", "kube-a_b.c", [true, true]),
            ("ns.app", "ns.app", [true, true]),
            ("ns.app", "ns.app-1", [true, false]),
        ] {
            assert_eq!(results(user, client_id), expected, "{user} {client_id}");
        }
    }

    #[test]
    fn user_in_the_password_file_takes_precedence_over_a_service_account() {
        let door = ClientIds::new("system:serviceaccount:home:door");
        assert_eq!((door.name(), &*door.prefix()), ("home.door", "home.door_"));
        for (client_id, users, expected) in [
            ("home.door", &[][..], true),
            ("home.door_1", &[], true),
            ("home.door-1", &[], false),
            ("home.doors", &[], false),
            ("home.door", &["home.door"], false),
            ("home.door_1", &["home.door"], true),
            ("home.door", &["home"], true),
        ] {
            let found = door.contains(client_id, users.iter().copied(), true);
            assert_eq!(found, expected, "{client_id} {users:?}");
        }
    }
}
