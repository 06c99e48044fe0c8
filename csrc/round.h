/* One round of the engine, and what it shares with the rest of it. */
#ifndef GT_ROUND_H
#define GT_ROUND_H

#include "engine.h"

gt_history gt_history_of(const gt_engine *e);

/* The source of that kind; NULL where there is none, it is off, or it failed in this request. */
gt_source *gt_source_of(const gt_engine *e, int kind);

/* A failing source never fails the request: it is switched off and its code kept. A cancel is no failure: returned. */
int gt_source_result(gt_engine *e, int kind, int code);

/* Switches all sources off for this request: the target cannot take proposals back. */
void gt_refuse_all(gt_engine *e, int code);

bool gt_any_failed(const gt_engine *e);

/* Fills the engine's draft with at most n_max proposals, none of them less probable than p_min: as many as pace finds
 * worth it, or as there are. Only a cancel is returned. */
int gt_propose(gt_engine *e, bool paced, int32_t n_max, float p_min);

/* Cuts the sources back to the history; a failure is their own. */
void gt_drop_proposals(gt_engine *e);

#endif
