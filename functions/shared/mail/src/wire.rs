//! How types of the domain, which knows no format, are written in JSON.

/// Names, as their text.
pub(crate) mod text {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Moments, as Unix milliseconds.
pub(crate) mod ms {
    use sendslot_domain::Moment;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(crate) fn serialize<S: Serializer>(moment: &Moment, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(moment.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Moment, D::Error> {
        u64::deserialize(from).map(Moment)
    }
}

/// Moments that may be absent.
pub(crate) mod ms_or_none {
    use sendslot_domain::Moment;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde's signature")]
    pub(crate) fn serialize<S: Serializer>(at: &Option<Moment>, to: S) -> Result<S::Ok, S::Error> {
        at.map(|at| at.0).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Moment>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Moment))
    }
}

/// Booked cells, as pairs of the cell and its recipients.
pub(crate) mod cells {
    use sendslot_domain::Cell;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        cells: &[(Cell, u32)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(cells.iter().map(|(cell, count)| (cell.0, *count)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(Cell, u32)>, D::Error> {
        let pairs = Vec::<(u64, u32)>::deserialize(from)?;
        Ok(pairs
            .into_iter()
            .map(|(cell, count)| (Cell(cell), count))
            .collect())
    }
}
