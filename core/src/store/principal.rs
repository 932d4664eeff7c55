//! The sender of a request, and the policy.

use alloc::boxed::Box;
use core::fmt;

use crate::topic::ResponseTopic;
use crate::transport::{Access, Incoming, Rights};

/// The sender of a request, and whether its client id is verified.
///
/// A broker that hosts the store knows its clients. A store that is an ordinary MQTT client knows
/// only what the request claims, so any client that may publish requests can use another
/// client's id.
#[derive(Clone, Copy)]
pub struct Principal<'a> {
    client_id: Option<&'a str>,
    is_verified: bool,
    owner: Option<&'a str>,
    rights: Option<&'a dyn Rights>,
}

impl<'a> Principal<'a> {
    /// A client id that the broker authenticated.
    #[must_use]
    pub const fn verified(client_id: &'a str) -> Self {
        Self { client_id: Some(client_id), is_verified: true, owner: None, rights: None }
    }

    /// Sets the owner whose share the keys, registrations and cached responses of a verified client
    /// count against. Without an owner, it is the share of the client id.
    #[must_use]
    pub const fn with_owner(mut self, owner: Option<&'a str>) -> Self {
        self.owner = owner;
        self
    }

    /// The client id that a request names: `__srcId`, or else the one in a response topic of the
    /// recommended form.
    #[must_use]
    pub fn unverified(incoming: &Incoming<'a>) -> Self {
        let from_topic = || Some(ResponseTopic::parse(incoming.response_topic?)?.client_id());
        let client_id = incoming.properties.source.filter(|id| !id.is_empty()).or_else(from_topic);
        Self { client_id, is_verified: false, owner: None, rights: None }
    }

    /// The [verified sender](Incoming::verified_sender) of a message, or else the
    /// [unverified](Self::unverified) one.
    #[must_use]
    pub fn of(incoming: &Incoming<'a>) -> Self {
        match incoming.verified_sender {
            Some(client_id) => {
                Self { owner: incoming.owner, rights: incoming.rights, ..Self::verified(client_id) }
            }
            None => Self::unverified(incoming),
        }
    }

    /// The sender of a request whose response was recorded.
    pub(super) const fn recorded(
        client_id: &'a str,
        is_verified: bool,
        owner: Option<&'a str>,
    ) -> Self {
        Self { client_id: Some(client_id), is_verified, owner, rights: None }
    }

    /// The owner whose share the keys, registrations and cached responses of a verified client count
    /// against, such as its user: one user may have many client ids.
    #[must_use]
    pub const fn owner(&self) -> Option<&'a str> {
        self.owner
    }

    /// The [rights](Incoming::rights) of a verified client, if its broker knows them.
    #[must_use]
    pub const fn rights(&self) -> Option<&'a dyn Rights> {
        self.rights
    }

    /// The MQTT client id, if it is known.
    #[must_use]
    pub const fn client_id(&self) -> Option<&'a str> {
        self.client_id
    }

    /// Returns whether the broker authenticated the client id.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        self.is_verified
    }
}

impl fmt::Debug for Principal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal")
            .field("client_id", &self.client_id)
            .field("is_verified", &self.is_verified)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl Access {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Read => "read the key",
            Self::Write => "write the key",
            Self::Fence => "write the key with a fencing token",
        }
    }
}

/// The policy of the embedder: returns whether this principal has this access to this key.
///
/// The result must depend on the arguments alone. Return what [`Principal::rights`] allow if the
/// broker knows the rights of each client. A replay gives equal outputs only if it
/// also replays the results: `statestore-capture` records them.
pub type Authorizer = Box<dyn Fn(&Principal<'_>, Access, &[u8]) -> bool + Send + Sync>;
