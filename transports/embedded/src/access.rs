//! Who may connect and publish, and who comes and goes: what the broker asks and tells.

use std::future::ready;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use mqtt5::broker::{
    AuthProvider, AuthResult, BrokerEventHandler, ClientConnectEvent, ClientDisconnectEvent,
};
use mqtt5::packet::connect::ConnectPacket;
use mqtt5::protocol::v5::reason_codes::ReasonCode;
use statestore_proto::topic;
use tokio::sync::Semaphore;

use crate::store_route::StoreRoute;
use crate::users::SharedUsers;

/// The client id of the store itself.
pub(crate) const STORE: &str = "$statestore";

/// Below it publishes nobody but the store.
const RESERVED: &str = "clients/statestore/";

/// Passwords looked at at a time: each takes 19 MB and a thread for a while.
const CHECKS_MAX: usize = 2;

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whether a client may publish there.
pub(crate) fn may_publish(topic: &str) -> bool {
    !topic.starts_with(RESERVED)
}

/// The rules of the broker.
pub(crate) struct Access {
    users: Option<SharedUsers>,
    checks: Semaphore,
    store_route: Arc<StoreRoute>,
}

impl Access {
    pub(crate) const fn new(users: Option<SharedUsers>, store_route: Arc<StoreRoute>) -> Self {
        Self { users, checks: Semaphore::const_new(CHECKS_MAX), store_route }
    }

    async fn login(&self, connect: &ConnectPacket) -> AuthResult {
        if connect.client_id == STORE {
            return AuthResult::fail(ReasonCode::ClientIdentifierNotValid);
        }
        let Some(users) = self.users.as_ref().map(SharedUsers::current) else {
            return AuthResult::success();
        };
        let refused = AuthResult::fail(ReasonCode::BadUsernameOrPassword);
        let Some((name, password)) = connect.username.clone().zip(connect.password.clone()) else {
            return refused;
        };
        let Ok(_permit) = self.checks.acquire().await else { return refused };
        let user = name.clone();
        // Slow on purpose, so not here, where everything else would wait.
        let check = tokio::task::spawn_blocking(move || users.verify(&user, &password));
        if check.await.unwrap_or(false) { AuthResult::success_with_user(name) } else { refused }
    }
}

impl AuthProvider for Access {
    fn authenticate<'a>(
        &'a self,
        connect: &'a ConnectPacket,
        _: SocketAddr,
    ) -> Answer<'a, mqtt5::Result<AuthResult>> {
        Box::pin(async { Ok(self.login(connect).await) })
    }

    fn authorize_publish<'a>(
        &'a self,
        _: &str,
        _: Option<&'a str>,
        topic: &'a str,
    ) -> Answer<'a, bool> {
        if topic == topic::REQUEST {
            return Box::pin(self.store_route.admit());
        }
        Box::pin(ready(may_publish(topic)))
    }

    fn authorize_subscribe<'a>(
        &'a self,
        _: &str,
        _: Option<&'a str>,
        _: &'a str,
    ) -> Answer<'a, bool> {
        Box::pin(ready(true))
    }
}

/// Tells the store who has gone.
pub(crate) struct Presence(pub(crate) Arc<StoreRoute>);

impl BrokerEventHandler for Presence {
    fn on_client_connect<'a>(&'a self, event: ClientConnectEvent) -> Answer<'a, ()> {
        // The registrations of the one that was taken over end before anything of this one is read.
        if self.0.enter(&event.client_id) {
            return Box::pin(async move { self.0.tell_gone(&event.client_id).await });
        }
        Box::pin(ready(()))
    }

    fn on_client_disconnect<'a>(&'a self, event: ClientDisconnectEvent) -> Answer<'a, ()> {
        if self.0.leave(&event.client_id) {
            return Box::pin(async move { self.0.tell_gone(&event.client_id).await });
        }
        Box::pin(ready(()))
    }
}
