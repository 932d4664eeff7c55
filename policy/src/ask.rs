//! Whom and what a policy is asked about.

use statestore_mqtt::topic;
use statestore_proto::store::Access;

/// Who somebody is, as the transport has found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Principal<'a> {
    /// MQTT client id.
    pub client_id: &'a str,
    /// User name, if there is one: of a password, a certificate or a token.
    pub user_name: Option<&'a str>,
    /// What else is known, each name once: from a certificate or a token.
    pub attributes: &'a [(&'a str, &'a str)],
}

impl<'a> Principal<'a> {
    pub(crate) fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action<'a> {
    /// Connect, with the client id of the [`Principal`].
    Connect,
    /// Publish to a topic.
    Publish(&'a str),
    /// Subscribe to a topic filter, which is given without its share.
    Subscribe(&'a str),
    /// GET or KEYNOTIFY of a key, or having it listed by SCAN.
    Read(&'a [u8]),
    /// SET, DEL or VDEL of a key.
    Write(&'a [u8]),
    /// The same with a fencing token: what may be written and also fenced. See [`Fence`](crate#fences).
    Fence(&'a [u8]),
}

impl<'a> Action<'a> {
    /// Why nobody can do this whatever is allowed: it is no topic, or no topic filter.
    ///
    /// ```
    /// use statestore_policy::Action;
    ///
    /// assert_eq!(Action::Subscribe("rooms/#").problem(), None);
    /// assert!(Action::Subscribe("rooms/#/lux").problem().is_some());
    /// assert!(Action::Publish("rooms/#").problem().is_some());
    /// ```
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        match self {
            Self::Publish(name) if !topic::is_name(name) => {
                Some("it is no topic to publish to: one has no `+` and no `#`, and is not empty")
            }
            Self::Subscribe(filter) if filter.starts_with("$share/") => {
                Some("it is a shared subscription: ask for the filter behind $share/NAME/")
            }
            Self::Subscribe(filter) if !topic::is_filter(filter) => Some(
                "it is no topic filter: `+` is a whole level, and `#` a whole level at the end",
            ),
            _ => None,
        }
    }

    /// The action that an [`Access`] to a key is; `None` for one that this crate does not know.
    #[must_use]
    pub const fn of_key(access: Access, key: &'a [u8]) -> Option<Self> {
        match access {
            Access::Read => Some(Self::Read(key)),
            Access::Write => Some(Self::Write(key)),
            Access::Fence => Some(Self::Fence(key)),
            _ => None,
        }
    }
}
