//! Iteration over validated properties without decoding them.

use core::fmt;

use super::Property;
use super::value::ValueType;
use crate::error::Malformed;
use crate::hidden::Hidden;
use crate::wire::Reader;

/// Iterator over validated properties that are not decoded. Skipping a property costs only reading
/// its length.
///
/// ```
/// use statestore_mqtt::property::{Pieces, Property, id};
///
/// // Message Expiry Interval 60 and Content Type "json".
/// let properties = [0x02, 0, 0, 0, 60, 0x03, 0, 4, b'j', b's', b'o', b'n'];
/// let mut pieces = Pieces::new(&properties);
/// assert_eq!(pieces.next().map(|piece| piece.id), Some(id::MESSAGE_EXPIRY));
/// let content_type = pieces.next().and_then(|piece| piece.read());
/// assert_eq!(content_type, Some(Property::ContentType("json")));
/// assert!(pieces.next().is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Pieces<'a>(Reader<'a>);

/// An encoded property.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    /// The identifier, one of [`id`](super::id).
    pub id: u8,
    /// The identifier and the value.
    pub bytes: &'a [u8],
}

/// Omits the value.
impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece").field("id", &self.id).field("bytes", &Hidden(self.bytes)).finish()
    }
}

impl<'a> Pieces<'a> {
    /// Iterates over encoded properties without their length. Iteration ends at bytes that are not
    /// a property.
    #[must_use]
    pub const fn new(properties: &'a [u8]) -> Self {
        Self(Reader::new(properties))
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let before = self.0.as_bytes();
        // The properties were validated, so the only possible error is the end.
        let id = skip(&mut self.0).ok()?;
        let len = before.len() - self.0.as_bytes().len();
        before.get(..len).map(|bytes| Piece { id, bytes })
    }
}

impl<'a> Piece<'a> {
    /// Decodes the property; `None` if it is malformed.
    #[must_use]
    pub fn read(self) -> Option<Property<'a>> {
        let mut value = Reader::new(self.bytes.get(1..)?);
        ValueType::of(self.id)?.check(&mut value, self.id).ok()?;
        Property::read_checked(&mut Reader::new(self.bytes)).ok()
    }
}

/// Skips a checked property and returns its identifier.
fn skip(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    let id = reader.byte()?;
    ValueType::of(id).ok_or(Malformed::Property(id))?.skip(reader)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use bytes::BytesMut;

    use super::super::{Encode, IdSet, Properties};
    use super::*;
    use crate::qos::Qos;

    #[test]
    fn pieces_decode_to_the_encoded_properties() {
        let all = [
            Property::PayloadFormat(true),
            Property::MessageExpiry(1),
            Property::ContentType("text"),
            Property::ResponseTopic("a/b"),
            Property::CorrelationData(&[0, 1, 2]),
            Property::SubscriptionId(200_000),
            Property::SessionExpiry(u32::MAX),
            Property::AssignedClientId("c"),
            Property::ServerKeepAlive(60),
            Property::AuthenticationMethod(""),
            Property::AuthenticationData(&[]),
            Property::RequestProblemInformation(false),
            Property::WillDelay(0),
            Property::RequestResponseInformation(true),
            Property::ResponseInformation("r"),
            Property::ServerReference("s"),
            Property::ReasonString("why"),
            Property::ReceiveMaximum(7),
            Property::TopicAliasMaximum(0),
            Property::TopicAlias(9),
            Property::MaximumQos(Qos::AtLeastOnce),
            Property::RetainAvailable(true),
            Property::User("", ""),
            Property::User("name", "value"),
            Property::MaximumPacketSize(1 << 20),
            Property::WildcardAvailable(true),
            Property::SubscriptionIdsAvailable(true),
            Property::SharedAvailable(false),
        ];
        let mut bytes = BytesMut::new();
        all[..].put(&mut bytes).expect("encodable properties");
        let pieces = Pieces::new(&bytes);
        let read: Vec<_> = pieces.clone().filter_map(Piece::read).collect();
        assert_eq!(read, all);
        let ids = pieces.clone().map(|piece| piece.id);
        assert!(ids.eq(all.iter().map(Property::id)), "identifiers differ");
        assert_eq!(pieces.flat_map(|piece| piece.bytes).count(), bytes.len());
        let ids: Vec<_> = all.iter().map(Property::id).collect();
        for property in all.iter().filter(|property| **property != Property::User("name", "value"))
        {
            let others: Vec<_> = ids.iter().copied().filter(|id| *id != property.id()).collect();
            let others = Properties::from_validated(&bytes, IdSet::of(&others));
            assert_eq!(others.first(property.id()), None);
            let properties = Properties::from_validated(&bytes, IdSet::of(&ids));
            assert_eq!(properties.first(property.id()).as_ref(), Some(property));
            assert!(!properties.has(property.id() | 0x40), "unknown property");
        }
    }
}
