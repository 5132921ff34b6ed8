import fc from 'fast-check';

// One seed for everybody, so that a change is what turns a property red and never the day. `LLMGW_PROPERTY_SEED` starts elsewhere.
fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: Number(process.env['LLMGW_PROPERTY_SEED'] ?? 1) });
