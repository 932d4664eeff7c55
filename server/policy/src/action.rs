//! Principals and actions: the arguments of a decision.

use statestore_mqtt::topic;
use statestore_proto::store::Access;

/// The identity of a client, as the transport established it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Principal<'a> {
    /// MQTT client id.
    pub client_id: &'a str,
    /// User name from a password, a certificate or a token, if the client has one.
    pub user_name: Option<&'a str>,
    /// Attributes from a certificate or a token; each name occurs once.
    pub attributes: &'a [(&'a str, &'a str)],
}

impl<'a> Principal<'a> {
    pub(crate) fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }
}

/// An action that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action<'a> {
    /// Connect, with the client id of the [`Principal`].
    Connect,
    /// Publish to a topic.
    Publish(&'a str),
    /// Subscribe to a topic filter, without the `$share/NAME/` of a shared subscription.
    Subscribe(&'a str),
    /// GET or KEYNOTIFY of a key, or SCAN that would list it.
    Read(&'a [u8]),
    /// SET, DEL or VDEL of a key.
    Write(&'a [u8]),
    /// SET, DEL or VDEL of a key with a fencing token. See [`Fence`](crate#fences).
    Fence(&'a [u8]),
}

impl<'a> Action<'a> {
    /// Returns why the action is invalid whatever the policy allows: a topic or a topic filter is
    /// malformed.
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
            Self::Publish(name) if !topic::is_name(name) => Some(
                "it is not a topic to publish to: a topic contains no `+` or `#`, and is \
                    not empty",
            ),
            Self::Subscribe(filter) if filter.starts_with("$share/") => {
                Some("it is a shared subscription: use the filter after $share/NAME/")
            }
            Self::Subscribe(filter) if !topic::is_filter(filter) => Some(
                "it is not a topic filter: `+` is a whole level, and `#` a whole level at the end",
            ),
            _ => None,
        }
    }

    /// Returns the action for an [`Access`] to a key, or `None` for an access that this crate does
    /// not know.
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
