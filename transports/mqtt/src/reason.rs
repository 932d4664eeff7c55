//! Reason codes.

use core::fmt;

/// A reason code: below 0x80 it went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub u8);

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        impl Reason {
            $($(#[$doc])* pub const $name: Self = Self($code);)*
        }

        impl fmt::Display for Reason {
            /// The standard's name for it. Those of 0x00, 0x01 and 0x02 depend on the packet.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => f.write_str($text),)*
                    other => write!(f, "reason code 0x{other:02x}"),
                }
            }
        }
    };
}

reasons! {
    /// Success; a normal disconnection; granted at QoS 0.
    SUCCESS = 0x00, "success";
    /// Granted at QoS 1.
    GRANTED_QOS_1 = 0x01, "granted QoS 1";
    /// Granted at QoS 2.
    GRANTED_QOS_2 = 0x02, "granted QoS 2";
    /// A client disconnects and wants its will published.
    DISCONNECT_WITH_WILL = 0x04, "disconnect with will message";
    /// Nobody subscribes to the topic.
    NO_MATCHING_SUBSCRIBERS = 0x10, "no matching subscribers";
    /// There was no such subscription.
    NO_SUBSCRIPTION_EXISTED = 0x11, "no subscription existed";
    /// Authentication goes on.
    CONTINUE_AUTHENTICATION = 0x18, "continue authentication";
    /// A client authenticates again.
    RE_AUTHENTICATE = 0x19, "re-authenticate";
    /// None that follows fits, or the server does not want to say.
    UNSPECIFIED_ERROR = 0x80, "unspecified error";
    /// What came could not be read.
    MALFORMED_PACKET = 0x81, "malformed packet";
    /// What came has no place there.
    PROTOCOL_ERROR = 0x82, "protocol error";
    /// It is in order, but not taken here.
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83, "implementation specific error";
    /// Not MQTT 5.
    UNSUPPORTED_PROTOCOL_VERSION = 0x84, "unsupported protocol version";
    /// The client id is not allowed.
    CLIENT_IDENTIFIER_NOT_VALID = 0x85, "client identifier not valid";
    /// Who this claims to be cannot be believed.
    BAD_USER_NAME_OR_PASSWORD = 0x86, "bad user name or password";
    /// It is not allowed.
    NOT_AUTHORIZED = 0x87, "not authorized";
    /// The server is not available.
    SERVER_UNAVAILABLE = 0x88, "server unavailable";
    /// The server has too much to do.
    SERVER_BUSY = 0x89, "server busy";
    /// The client may never come back.
    BANNED = 0x8a, "banned";
    /// The server ends.
    SERVER_SHUTTING_DOWN = 0x8b, "server shutting down";
    /// No such authentication here.
    BAD_AUTHENTICATION_METHOD = 0x8c, "bad authentication method";
    /// Nothing came for one and a half times the keep alive.
    KEEP_ALIVE_TIMEOUT = 0x8d, "keep alive timeout";
    /// Another connection has the client id now.
    SESSION_TAKEN_OVER = 0x8e, "session taken over";
    /// The topic filter is well-formed, but not taken.
    TOPIC_FILTER_INVALID = 0x8f, "topic filter invalid";
    /// The topic name is well-formed, but not taken.
    TOPIC_NAME_INVALID = 0x90, "topic name invalid";
    /// The packet identifier is in use.
    PACKET_IDENTIFIER_IN_USE = 0x91, "packet identifier in use";
    /// The packet identifier is not in use.
    PACKET_IDENTIFIER_NOT_FOUND = 0x92, "packet identifier not found";
    /// More without an acknowledgement than was agreed.
    RECEIVE_MAXIMUM_EXCEEDED = 0x93, "receive maximum exceeded";
    /// A topic alias of zero, or greater than was agreed.
    TOPIC_ALIAS_INVALID = 0x94, "topic alias invalid";
    /// A packet longer than was agreed.
    PACKET_TOO_LARGE = 0x95, "packet too large";
    /// Too many in too short a time.
    MESSAGE_RATE_TOO_HIGH = 0x96, "message rate too high";
    /// A limit of the server is reached.
    QUOTA_EXCEEDED = 0x97, "quota exceeded";
    /// Somebody wants it so.
    ADMINISTRATIVE_ACTION = 0x98, "administrative action";
    /// The payload is not what it says.
    PAYLOAD_FORMAT_INVALID = 0x99, "payload format invalid";
    /// No retained messages here.
    RETAIN_NOT_SUPPORTED = 0x9a, "retain not supported";
    /// No such QoS here.
    QOS_NOT_SUPPORTED = 0x9b, "QoS not supported";
    /// Another server, for now.
    USE_ANOTHER_SERVER = 0x9c, "use another server";
    /// Another server, for good.
    SERVER_MOVED = 0x9d, "server moved";
    /// No shared subscriptions here.
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9e, "shared subscriptions not supported";
    /// Too many connections in too short a time.
    CONNECTION_RATE_EXCEEDED = 0x9f, "connection rate exceeded";
    /// As long as a connection may last.
    MAXIMUM_CONNECT_TIME = 0xa0, "maximum connect time";
    /// No subscription identifiers here.
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xa1, "subscription identifiers not supported";
    /// No wildcards here.
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xa2, "wildcard subscriptions not supported";
}

impl Reason {
    /// Whether it says that something went wrong.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }
}
