# Part of _native.pyx: how many tokens to draft (csrc/pace.h).

cdef class Pace:
    """A gt_pace with a draft of its own, of which only the sources' kinds and probabilities matter."""

    cdef gt_pace pace
    cdef gt_draft draft
    cdef float sure[64]
    cdef uint8_t kinds[64]

    def __init__(self, int32_t n_max=16, widths=()):
        gt_pace_init(&self.pace, n_max)
        cdef const int32_t[::1] allowed = array("i", widths)
        if allowed.shape[0]:
            gt_pace_widths(&self.pace, &allowed[0], <int32_t>allowed.shape[0])
        self.draft.sure, self.draft.kind, self.draft.n = self.sure, self.kinds, 0

    cdef int32_t lags(self, lag, int32_t *out) except -1:
        for i in range(GT_KINDS):
            out[i] = lag[i]
        return 0

    def request(self):
        """A new request begins."""
        gt_pace_request(&self.pace)

    def verified(self, int32_t width, int64_t us):
        """A target batch took so long."""
        gt_pace_verified(&self.pace, width, us)

    def drafted(self, int32_t kind, int32_t n, int64_t us):
        """A draft batch took so long."""
        gt_pace_drafted(&self.pace, kind, n, us)

    def begin(self, uint32_t on, lag, int32_t most=GT_PACE_MAX):
        """A round of at most `most` proposals: the kind that drafts first, or None. lag: one number per kind."""
        cdef int32_t lags[3]
        self.lags(lag, lags)
        self.draft.max = min(max(most, 0), GT_PACE_MAX)
        kind = gt_pace_begin(&self.pace, &self.draft, on, lags)
        return None if kind == GT_PACE_NONE else kind

    def add(self, int32_t kind, float sure):
        """The source appends a proposal."""
        if not 0 <= kind < GT_KINDS or self.draft.n >= self.draft.max:
            raise ValueError("no such kind, or the draft is full")
        self.kinds[self.draft.n], self.sure[self.draft.n] = kind, sure
        self.draft.n += 1

    def more(self, uint32_t on, lag):
        """The kind that drafts next, or None; the draft may be empty afterwards."""
        cdef int32_t lags[3]
        self.lags(lag, lags)
        kind = gt_pace_more(&self.pace, &self.draft, on, lags)
        return None if kind == GT_PACE_NONE else kind

    def length(self):
        """How many proposals to verify; the draft is cut to them."""
        gt_draft_cut(&self.draft, gt_pace_length(&self.pace, &self.draft))
        return self.draft.n

    def outcome(self, int32_t n_agreed, bint ended=False):
        """The draft was verified; n_agreed may count the first of those that were not."""
        gt_pace_outcome(&self.pace, &self.draft, n_agreed, ended)

    def hopeless(self, int32_t kind):
        """Whether this kind could not pay even if all were accepted."""
        return gt_pace_hopeless(&self.pace, kind)

    def verify_us(self, int32_t width):
        """Expected microseconds of a target batch."""
        return gt_cost_of(&self.pace.learned.verify, width, False)

    def draft_us(self, int32_t kind, int32_t n):
        """Expected microseconds of a draft batch."""
        return gt_learned_draft(&self.pace.learned, kind, n, False)

    def chance(self, int32_t kind, float sure, int32_t depth):
        """Expected acceptance of a proposal."""
        return gt_odds_chance(&self.pace.learned.odds[kind], sure, depth)

    def save(self):
        """What was learned, as a list of numbers."""
        values = array("f", bytes(4 * GT_LEARNED_FLOATS))
        cdef float[::1] view = values
        gt_pace_save(&self.pace, &view[0])
        return values.tolist()

    def load(self, values):
        """Takes what save gave; ValueError, and nothing changed, for anything else."""
        cdef const float[::1] view = array("f", values)
        cdef int32_t n = <int32_t>view.shape[0]
        if n == 0 or not gt_pace_load(&self.pace, &view[0], n):
            raise ValueError("not what pace has saved: another version, or numbers out of range")

    @property
    def n_draft(self):
        """Proposals in hand."""
        return self.draft.n

    @property
    def probing(self):
        """Whether this round's proposals are made, or verified, in order to learn."""
        return self.pace.probe

    @property
    def rate(self):
        """The best tokens per second of late, that of no draft included."""
        return gt_pace_rate(&self.pace)

    @property
    def bank(self):
        """Microseconds that probes may lose."""
        return self.pace.learned.bank
