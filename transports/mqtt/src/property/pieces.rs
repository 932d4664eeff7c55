//! Checked properties, of which few are to be read.

use super::{Property, id};
use crate::error::Malformed;
use crate::wire::Reader;

/// The bytes of each property, in order. Of what nobody asks for only the length is looked at, since there may be very many.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<'a>(Reader<'a>);

/// The bytes of one property.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) id: u8,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Pieces<'a> {
    pub(crate) const fn new(properties: &'a [u8]) -> Self {
        Self(Reader::new(properties))
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let before = self.0.as_bytes();
        // They were checked, so the only error is that nothing is left.
        let id = skip(&mut self.0).ok()?;
        let len = before.len() - self.0.as_bytes().len();
        before.get(..len).map(|bytes| Piece { id, bytes })
    }
}

impl<'a> Piece<'a> {
    pub(crate) fn read(self) -> Option<Property<'a>> {
        Property::read(&mut Reader::new(self.bytes)).ok()
    }
}

/// Goes on behind a property, and gives its identifier.
fn skip(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    let id = reader.byte()?;
    match id {
        id::PAYLOAD_FORMAT
        | id::REQUEST_PROBLEM_INFORMATION
        | id::REQUEST_RESPONSE_INFORMATION
        | id::MAXIMUM_QOS
        | id::RETAIN_AVAILABLE
        | id::WILDCARD_AVAILABLE
        | id::SUBSCRIPTION_IDS_AVAILABLE
        | id::SHARED_AVAILABLE => reader.byte().map(drop)?,
        id::SERVER_KEEP_ALIVE | id::RECEIVE_MAXIMUM | id::TOPIC_ALIAS_MAXIMUM | id::TOPIC_ALIAS => {
            reader.two().map(drop)?
        }
        id::MESSAGE_EXPIRY | id::SESSION_EXPIRY | id::WILL_DELAY | id::MAXIMUM_PACKET_SIZE => {
            reader.four().map(drop)?;
        }
        id::SUBSCRIPTION => reader.varint().map(drop)?,
        id::USER => {
            reader.binary()?;
            reader.binary()?;
        }
        // Texts and data.
        _ => reader.binary().map(drop)?,
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use bytes::BytesMut;

    use super::super::{Encode, Properties, bit};
    use super::*;
    use crate::qos::Qos;

    #[test]
    fn pieces_are_what_reading_them_one_by_one_finds() {
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
        all[..].put(&mut bytes).expect("they are short");
        let pieces = Pieces::new(&bytes);
        let read: Vec<_> = pieces.clone().filter_map(Piece::read).collect();
        assert_eq!(read, all);
        let ids = pieces.clone().map(|piece| piece.id);
        assert!(ids.eq(all.iter().map(Property::id)), "each with its identifier");
        assert_eq!(pieces.flat_map(|piece| piece.bytes).count(), bytes.len());
        let seen = all.iter().fold(0, |seen, property| seen | bit(property.id()));
        for property in all.iter().filter(|property| **property != Property::User("name", "value"))
        {
            let others = Properties::trusted(&bytes, seen & !bit(property.id()));
            assert_eq!(others.first(property.id()), None);
            let properties = Properties::trusted(&bytes, seen);
            assert_eq!(properties.first(property.id()).as_ref(), Some(property));
            assert!(!properties.has(property.id() | 0x40), "there is no such property");
        }
    }
}
