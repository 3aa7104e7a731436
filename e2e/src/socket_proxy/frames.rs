//! As much of HTTP/2 as it takes to see the answers of a gRPC server go by (RFC 9113, 4.1 and 6.2).

/// Length (3 bytes), type, flags, stream (4 bytes).
const HEADER: usize = 9;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// Counts the answers in what a server sends.
#[derive(Debug, Default)]
pub(super) struct AnswerCount {
    /// The header of the next frame, as far as it has come.
    header: Vec<u8>,
    /// What is still to come of the frame before it.
    payload: usize,
}

/// What a client sends before its frames (RFC 9113, 3.4): `PRI * HTTP/2.0`, and so on.
const PREFACE: usize = 24;

impl AnswerCount {
    /// Counts calls, in what a client sends: they begin with HEADERS too.
    pub(super) fn of_calls() -> Self {
        Self { payload: PREFACE, ..Self::default() }
    }

    /// Takes the next bytes, however they are cut; gives how many answers begin with frames whose headers are complete by
    /// then. An answer begins with HEADERS, and ends with more of them, which end its stream.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> usize {
        let mut begun = 0;
        while !bytes.is_empty() {
            let skipped = self.payload.min(bytes.len());
            self.payload -= skipped;
            bytes = &bytes[skipped..];
            let missing = (HEADER - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if let [high, middle, low, kind, flags, _, _, _, _] = self.header[..] {
                self.payload = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.header.clear();
                if kind == HEADERS && flags & END_STREAM == 0 {
                    begun += 1;
                }
            }
        }
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        // Payloads that look like frames themselves.
        frame.extend(std::iter::repeat_n(HEADERS, length.into()));
        frame
    }

    /// SETTINGS and two answers: HEADERS, DATA, and HEADERS that end the stream.
    fn two_answers() -> Vec<u8> {
        let answer = [frame(HEADERS, 4, 20), frame(0, 0, 30), frame(HEADERS, 5, 8)].concat();
        [frame(4, 0, 18), frame(4, 1, 0), answer.clone(), frame(6, 1, 8), answer].concat()
    }

    #[test]
    fn calls_are_counted_behind_the_preface() {
        let call = [frame(HEADERS, 4, 20), frame(0, 1, 30)].concat();
        let bytes =
            [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 18), call.clone(), call].concat();
        for piece in [1, 7, bytes.len()] {
            let mut count = AnswerCount::of_calls();
            assert_eq!(bytes.chunks(piece).map(|bytes| count.feed(bytes)).sum::<usize>(), 2);
        }
    }

    #[test]
    fn answers_are_counted_however_the_bytes_are_cut() {
        let bytes = two_answers();
        for size in 1..=bytes.len() {
            let mut count = AnswerCount::default();
            let begun: usize = bytes.chunks(size).map(|chunk| count.feed(chunk)).sum();
            assert_eq!(begun, 2, "in pieces of {size}");
        }
    }

    #[test]
    fn an_answer_is_counted_before_its_content() {
        let mut count = AnswerCount::default();
        assert_eq!(count.feed(&frame(4, 0, 18)), 0);
        assert_eq!(count.feed(&[0, 0, 20, HEADERS, 4, 0, 0, 0]), 0);
        assert_eq!(count.feed(&[1]), 1);
    }
}
